"""python -m flambeau.cli"""

import sys

from flambeau.cli import main

sys.exit(main())
