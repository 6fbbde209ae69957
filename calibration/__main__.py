import sys
from pathlib import Path
from calibration import catalog
from calibration.build import write_all
w,r=write_all(catalog.PROFILES)
print(len(w)); print("\n".join(r))
