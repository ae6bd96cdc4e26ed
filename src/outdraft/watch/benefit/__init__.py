"""What speculation is worth now, over none: 1 is break-even. Pure, three sources and a choice."""
