"""What the benches share. It puts the checkout on the path, because they use modules of the tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
