"""Start the scripted model server: `python -m vtc.demo --port 8000`."""

from vtc.demo.server import main

main()
