"""Records programs of somebody else: the launcher, the agent in their processes, and Nsight's tools around them."""
