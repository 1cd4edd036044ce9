"""List every mutant by its heading, in the order of the table."""

from __future__ import annotations

from mutant import Mutant
from mutants_of_bookkeeping import BOOKKEEPING
from mutants_of_bytes import BOUNDS
from mutants_of_declarations import DECLARATIONS
from mutants_of_engine import ENGINE
from mutants_of_etcd import ETCD
from mutants_of_failures import FAILURES
from mutants_of_guards import GUARDS
from mutants_of_handles import HANDLES, LEAVING
from mutants_of_history import HISTORY
from mutants_of_liveness import ABOUT_LIVENESS
from mutants_of_offers import OFFERS
from mutants_of_outages import OUTAGES
from mutants_of_overlap import ABOUT_OVERLAP, EXCLUDING_OVERLAP
from mutants_of_partitions import PARTITIONS
from mutants_of_retention import RETENTION
from mutants_of_run import RUN
from mutants_of_spark import SPARK
from mutants_of_streams import STREAMS
from mutants_of_turns import TURNS

BY_HEADING: dict[str, list[Mutant]] = {
    "Of the rules that exclude overlap": EXCLUDING_OVERLAP,
    "Others about overlap and tokens": ABOUT_OVERLAP,
    "About histories of etcd": HISTORY,
    "About outages": OUTAGES,
    "About liveness and stickiness": ABOUT_LIVENESS,
    "About leaving": LEAVING,
    "About offered ranks": OFFERS,
    "About what is brought along": BOOKKEEPING,
    "Of the engine": ENGINE,
    "Of handles": HANDLES,
    "Of the etcd client": ETCD,
    "Of partitions": PARTITIONS,
    "Of streams": STREAMS,
    "Of bytes": BOUNDS,
    "Of what apps declare": DECLARATIONS,
    "Of streams when events fail": FAILURES,
    "Of retention": RETENTION,
    "Of Spark": SPARK,
    "Of guards": GUARDS,
    "Of `rink run`": RUN,
    "Of the sidecar": TURNS,
}

MUTANTS = [mutant for mutants in BY_HEADING.values() for mutant in mutants]
