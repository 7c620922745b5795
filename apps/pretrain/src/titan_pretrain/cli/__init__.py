"""The command line.  Nothing here imports torch or pydantic before a command needs them."""
