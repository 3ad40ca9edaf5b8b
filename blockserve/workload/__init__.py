"""What is asked of the engine: built-in task families with exact graders, and workloads made of requests."""
