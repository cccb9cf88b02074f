from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.content import ContentIndex, Reference, content_address
from everyturn.audit.group import Group
from everyturn.audit.redact import NONE_FOUND, Redacted


class Stored:
    """What a store would hold, and how often a message was redacted."""

    def __init__(self, **fields: int) -> None:
        self.index = ContentIndex("rules-1", **fields)
        self.texts: dict[bytes, str] = {}
        self.nodes: dict[int, tuple[int | None, bytes]] = {}
        self.cleaned: list[bytes] = []

    def clean(self, raw: bytes) -> Redacted[str]:
        """Removes one word; counts it."""
        self.cleaned.append(raw)
        text = raw.decode()
        count = text.count("secret")
        return Redacted(text.replace("secret", "[redacted]"), {"word": count} if count else {})

    def refer(self, *items: bytes) -> Reference:
        """Refer to a list, and check that nothing in it says what is not so."""
        found = self.index.refer(items, self.clean)
        assert (found.ref is None) == (not items)
        return found

    def commit(self, found: Reference) -> None:
        """Store what is new, as a commit does, and confirm it."""
        for content in found.contents:
            self.texts[content.address] = content.text
        for node in found.nodes:
            assert node.node not in self.nodes
            assert node.parent is None or node.parent < node.node
            self.nodes[node.node] = (node.parent, node.address)
        self.index.confirm(Group((), nodes=found.nodes, known=found.known))

    def read(self, found: Reference) -> list[str]:
        """The list as a reader rebuilds it."""
        texts: list[str] = []
        at = None if found.ref is None else found.ref.node
        while at is not None:
            at, address = self.nodes[at]
            texts.append(self.texts[address])
        return texts[::-1]


def test_a_conversation_adds_only_what_is_new() -> None:
    """Each request brings its new messages, and its list is what was sent, redacted."""
    stored = Stored()
    history = [b'{"role":"system"}']

    for number in range(5):
        history += [b'{"n":%d.0,"secret":1}' % number, b'{"a":%d}' % number]
        found = stored.refer(*history)
        stored.commit(found)

        assert len(found.nodes) == len(found.contents) == (3 if number == 0 else 2)
        assert found.counts == {"word": number + 1}
        sent = [item.decode().replace("secret", "[redacted]") for item in history]
        assert stored.read(found) == sent
    assert len(stored.cleaned) == len(history)


def test_a_known_list_brings_nothing() -> None:
    """The same list again is a reference and its counts, and nothing is redacted again."""
    stored = Stored()
    first = stored.refer(b'"secret"', b'"b"')
    stored.commit(first)

    again = stored.refer(b'"secret"', b'"b"')

    assert (again.ref, again.counts) == (first.ref, {"word": 1})
    assert (again.contents, again.nodes, again.known) == ((), (), ())
    assert len(stored.cleaned) == 2


def test_a_list_that_comes_again_and_again_stays_the_same() -> None:
    """What leads a later request's items to the same place says no more than the first time."""
    stored = Stored()
    items = [b'{"role":"system"}', b'"secret"', b"1" * 5000]
    first = stored.refer(*items)
    stored.commit(first)

    for number in range(4):
        found = stored.refer(*items, b"%d" % number)

        assert [node.parent for node in found.nodes] == [first.nodes[-1].node]
        assert found.counts == {"word": 1}
        stored.commit(found)
        assert stored.read(found)[:-1] == stored.read(first)
    assert len(stored.cleaned) == 7


def test_a_way_of_cleaning_knows_nothing_of_another() -> None:
    """An item that came often is cleaned again where it is cleaned in another way."""
    stored = Stored()
    for _ in range(3):
        stored.commit(stored.refer(b"1"))

    found = stored.index.refer([b"1"], lambda _: Redacted("2", NONE_FOUND), way=b"other")

    assert [content.text for content in found.contents] == ["2"]
    stored.commit(found)
    assert stored.read(stored.refer(b"1")) == ["1"]
    assert stored.index.refer([b"1"], stored.clean, way=b"other").ref == found.ref


def test_what_was_not_committed_is_new_the_next_time() -> None:
    """A group that failed leaves no trace: the next request brings everything again."""
    stored = Stored()
    lost = stored.refer(b'"a"', b'"b"')

    found = stored.refer(b'"a"', b'"b"')

    again, first = ([(one.address, one.text) for one in r.contents] for r in (found, lost))
    assert again == first
    assert [node.address for node in found.nodes] == [node.address for node in lost.nodes]
    assert not {node.node for node in found.nodes} & {node.node for node in lost.nodes}


def test_lists_share_every_prefix_and_every_item() -> None:
    """A list that leaves another in the middle refers to what both begin with; items are shared."""
    stored = Stored()
    stored.commit(stored.refer(b"1", b"2", b"3"))

    fork = stored.refer(b"1", b"2", b"4", b"3")

    assert fork.nodes[0].parent == 2
    assert [content.text for content in fork.contents] == ["4"]
    stored.commit(fork)
    assert stored.read(fork) == ["1", "2", "4", "3"]


def test_the_same_item_twice_in_a_list_is_one_content() -> None:
    """A message that is repeated before it was ever stored comes once."""
    stored = Stored()

    found = stored.refer(b"1", b"1", b"1")

    assert len(found.contents) == 1
    assert len(found.nodes) == 3
    stored.commit(found)
    assert stored.read(found) == ["1", "1", "1"]


def test_an_empty_list_is_no_reference() -> None:
    """There is nothing to refer to, and nothing to store."""
    found = Stored().refer()

    assert (found.ref, found.counts) == (None, {})
    assert (found.contents, found.nodes, found.known) == ((), (), ())


def test_the_address_tells_rules_and_text() -> None:
    """Another text or another version of the rules has another address; 16 bytes each."""
    addresses = {
        content_address(version, text) for version in ("1", "2") for text in ("a", "b", "\ud800")
    }

    assert len(addresses) == 6
    assert {len(address) for address in addresses} == {16}


def test_memory_is_bounded_and_forgetting_costs_only_work() -> None:
    """With room for four, a fifth conversation is remembered and the first is written again."""
    stored = Stored(entries_max=4)
    for number in range(5):
        stored.commit(stored.refer(b"%d" % number))

    assert stored.refer(b"4").contents == ()
    forgotten = stored.refer(b"0")

    assert len(forgotten.contents) == 1
    assert forgotten.contents[0].address in stored.texts


def test_what_is_used_is_remembered_longest() -> None:
    """A prefix that is asked for again outlives those that came after it."""
    stored = Stored(entries_max=4)
    for number in range(4):
        stored.commit(stored.refer(b"%d" % number))
    stored.refer(b"0")

    stored.commit(stored.refer(b"4"))

    assert stored.refer(b"0").nodes == ()
    assert stored.refer(b"1").nodes != ()


def test_after_an_erasure_everything_is_new() -> None:
    """A cleared index trusts nothing that it knew."""
    stored = Stored()
    stored.commit(stored.refer(b"1", b"2"))

    stored.index.clear()

    assert len(stored.refer(b"1", b"2").contents) == 2


def test_nodes_grow_from_where_the_store_is() -> None:
    """The first node is the one that was given."""
    stored = Stored(node_first=41)

    assert [node.node for node in stored.refer(b"1", b"2").nodes] == [41, 42]


@given(
    lists=st.lists(st.lists(st.sampled_from([b"1", b"12", b"2", b'"secret"']), max_size=6)),
    commits=st.lists(st.booleans()),
    entries_max=st.integers(1, 8),
)
def test_every_list_reads_back_as_sent(
    lists: list[list[bytes]], commits: list[bool], entries_max: int
) -> None:
    """Whatever was lost or forgotten before, a committed list is the one that was sent."""
    stored = Stored(entries_max=entries_max)

    for number, items in enumerate(lists):
        found = stored.refer(*items)
        if number >= len(commits) or commits[number]:
            stored.commit(found)
            sent = [item.decode().replace("secret", "[redacted]") for item in items]
            assert stored.read(found) == sent
            assert found.counts.get("word", 0) == items.count(b'"secret"')


def test_what_has_to_be_cleaned_is_told_before() -> None:
    """What is unknown is not behind a known prefix, nor an item that is known by itself."""
    index = ContentIndex("v")
    items = [b'"a"', b'"b"', b'"c"']
    before = index.unknown(items)
    first = index.refer(items[:2], lambda raw: Redacted(raw.decode(), NONE_FOUND))
    index.confirm(Group((), first.contents, first.nodes, first.known))

    assert before == items
    assert index.unknown(items) == [b'"c"']
    assert index.unknown([b'"d"', b'"b"']) == [b'"d"']
    assert index.unknown([]) == []
