"""SGLang: tensor parallel, also over several hosts."""
