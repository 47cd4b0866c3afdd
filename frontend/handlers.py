"""The handlers of the primitives that the IR understands, by family: imported for what they register."""

from eqsat.frontend import control as control
from eqsat.frontend import handlers_calls as handlers_calls
from eqsat.frontend import handlers_contractions as handlers_contractions
from eqsat.frontend import handlers_elementwise as handlers_elementwise
from eqsat.frontend import handlers_indices as handlers_indices
from eqsat.frontend import handlers_joins as handlers_joins
from eqsat.frontend import handlers_layouts as handlers_layouts
from eqsat.frontend import handlers_pads as handlers_pads
from eqsat.frontend import handlers_placements as handlers_placements
from eqsat.frontend import handlers_random as handlers_random
from eqsat.frontend import handlers_reductions as handlers_reductions
