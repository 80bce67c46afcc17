"""Floor 5: data. What a user brings: tables, folders, arrays, stores; what they become, and what a run keeps."""

from edgewise.data.building import build_store as build_store
