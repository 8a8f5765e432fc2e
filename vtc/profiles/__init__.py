"""Profiles of clients, models, servers and policies: load YAML files, validate them, and choose by request.

load(directories)                       profiles of all kinds; raises `ProfileError`
Facts                                   facts about a request
Planner(profiles, settings).plan(…)     the decisions about an exchange: its `Plan`
Memory                                  facts learned from earlier exchanges
"""

from vtc.profiles.document import ProfileError
from vtc.profiles.loader import Profiles, Source, builtin_directory, load_profiles
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.plan import Plan, ReadingPlan, Thinking, ToolProtocol
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ClientProfile, Match, ModelProfile, PolicyProfile, ServerProfile
from vtc.profiles.settings import Settings
from vtc.profiles.stack import ProfileStack, UnknownName

__all__ = [
    "ClientProfile",
    "Facts",
    "Match",
    "Memory",
    "ModelProfile",
    "Plan",
    "Planner",
    "PolicyProfile",
    "ProfileError",
    "ProfileStack",
    "Profiles",
    "ReadingPlan",
    "ServerProfile",
    "Settings",
    "Source",
    "Thinking",
    "ToolProtocol",
    "UnknownName",
    "builtin_directory",
    "load_profiles",
]
