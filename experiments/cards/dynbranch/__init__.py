"""The card of DynBranch: reuse of subgraphs, early fill, priced gates."""
