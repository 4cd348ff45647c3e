"""python -m flambeau"""

import sys

from flambeau.cli import main

sys.exit(main())
