"""Run the story of members that are deployed, frozen and killed."""

from common.stage import Process, Stage

MEMBERS = 3


class Story(Stage):
    """Run the story of a group with three members, one in each slot."""

    share: str  # the word for a member's part of the group, such as "rank"
    frozen_slot = 0  # none yet; the kill hits another slot

    def run(self) -> None:
        self.start()
        self.let_work("deploy")
        self.deploy()
        self.let_work("freeze")
        self.phase("freeze")
        self.frozen_slot = self.random.choice(sorted(self.slots))
        victim = self.slots[self.frozen_slot]
        self.freeze_and_thaw(victim)
        self.wait_for(self.is_settled, f"{victim.name} to have a {self.share} again")
        self.let_work("kill")
        self.kill()
        self.finish()

    def start(self) -> None:
        self.phase("start")
        for slot in range(1, MEMBERS + 1):
            self.start_member(slot, 1)
        self.wait_for(self.is_settled, f"three members, each with its {self.share}")

    def deploy(self) -> None:
        """Replace every member as a surge deploy does: its successor starts first."""
        for slot, old in sorted(self.slots.items()):
            self.phase(f"deploy {slot}/{MEMBERS}")
            new = self.start_member(slot, old.generation + 1)
            self.wait_for(lambda new=new: self.has_joined(new), f"{new.name} to join")
            self.terminate(old)
            self.wait_until_gone(old)
            self.wait_for(self.is_settled, f"{new.name} to take {old.name}'s {self.share}")
            self.pause(0.5)
        self.phase("after the deploy")

    def kill(self) -> None:
        self.phase("kill")
        victim = self.slots[self.random.choice(sorted(self.slots.keys() - {self.frozen_slot}))]
        self.kill_process(victim)
        self.start_member(victim.slot, victim.generation + 1)
        self.wait_for(self.is_settled, f"{victim.name}'s {self.share} to be taken")

    def finish(self) -> None:
        self.phase("the rest of the work")
        self.wait_for(self.is_all_done, "the last of the work", self.step_timeout_s)
        self.stop_all()

    # Each demo tells these in its own way.

    def let_work(self, mishap: str) -> None:
        """Let the members work in peace until it is time for a mishap."""
        raise NotImplementedError

    def start_member(self, slot: int, generation: int) -> Process:
        raise NotImplementedError

    def has_joined(self, process: Process) -> bool:
        return self.state(process) == "running"

    def is_settled(self) -> bool:
        """Return whether exactly the running members have the whole group."""
        raise NotImplementedError

    def freeze_and_thaw(self, victim: Process) -> None:
        """Freeze a member in mid-work; thaw it once others do its work."""
        raise NotImplementedError

    def is_all_done(self) -> bool:
        raise NotImplementedError
