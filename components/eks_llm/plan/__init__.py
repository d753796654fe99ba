"""The credential-free preview: run a real program in process, record what it registers, report it."""
