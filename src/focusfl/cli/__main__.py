import sys

from focusfl.cli import main

sys.exit(main())
