"""`python -m outdraft`."""

import sys

from outdraft.cli.main import main

sys.exit(main())
