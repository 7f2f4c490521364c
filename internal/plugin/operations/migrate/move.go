package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// recordKey is the annotation in which both workloads record the progress of a move. It is written together
// with the replicas, so that the move can be interrupted at any point.
const recordKey = "apps.kruise.io/migration"

// record is the content of the annotation.
type record struct {
	// ID is the same on both workloads.
	ID string `json:"id"`
	// Source and Replicas describe the move; only the target has them.
	Source   string `json:"source,omitempty"`
	Replicas int64  `json:"replicas,omitempty"`
	// Target is the name of the target; only the source has it.
	Target string `json:"target,omitempty"`
	// Moved is how many replicas this workload has gained or given up.
	Moved int64 `json:"moved"`
}

func readRecord(object *unstructured.Unstructured) (record, error) {
	r := record{}
	text := object.GetAnnotations()[recordKey]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("annotation %s of %s: %w", recordKey, object.GetName(), err)
	}
	return r, nil
}

// step is the next change: the target is scaled up by raise, or the source down by lower.
type step struct{ raise, lower int64 }

// next returns the next step of a move, of which the target has got some replicas and the source has given
// some.
func next(all, got, given, surge int64, source, target *side) step {
	if !source.observed() || !target.observed() {
		return step{}
	}
	if raise := min(surge-(got-given), all-got); raise > 0 {
		return step{raise: raise}
	}
	if target.replicas() == target.number(0, "status", "availableReplicas") {
		return step{lower: max(0, min(source.replicas(), all-given, got-given))}
	}
	return step{}
}

// move moves replicas from the source to the target.
func (c *command) move(ctx context.Context, source, target *side) error {
	m := &mover{command: c, source: source, target: target, over: map[*side]string{}}
	if err := m.begin(ctx); err != nil {
		return because(ctx, err)
	}

	for {
		m.tell()
		if m.got == m.all && m.given == m.all {
			break
		}
		if err := m.advance(ctx); err != nil {
			return fmt.Errorf("%w; %s", because(ctx, err), m.state())
		}
		if c.options.DryRun != cmdutil.DryRunNone {
			fmt.Fprintf(c.Out, "would move %d replicas from %s to %s (dry run)\n", m.all, source, target)
			return nil
		}
	}

	if err := m.end(ctx); err != nil {
		return fmt.Errorf("%w; %s", because(ctx, err), m.state())
	}

	fmt.Fprintf(c.Out, "moved %d replicas from %s to %s\n", m.all, source, target)
	return nil
}

// mover is a move in progress.
type mover struct {
	*command
	source, target  *side
	id              string
	all, got, given int64
	// over are the IDs of moves that have ended, and of which a workload has a record yet.
	over map[*side]string
	said string
}

func (m *mover) state() string {
	return fmt.Sprintf("%s has got %d of %d replicas and %s has given %d", m.target, m.got, m.all, m.source,
		m.given)
}

func (m *mover) tell() {
	text := fmt.Sprintf("%s, %d of %d available", m.state(),
		m.target.number(0, "status", "availableReplicas"), m.target.replicas())
	if text != m.said {
		fmt.Fprintln(m.Out, text)
		m.said = text
	}
}

// look reads both workloads.
func (m *mover) look(ctx context.Context) error {
	if err := m.source.must(ctx); err != nil {
		return err
	}
	return m.target.must(ctx)
}

// begin starts a move, or resumes an interrupted one.
func (m *mover) begin(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}

	at, err := readRecord(m.target.object)
	if err != nil {
		return err
	}

	of, err := readRecord(m.source.object)
	if err != nil {
		return err
	}

	if of.Source != "" {
		return unfinished(of, m.source)
	}
	if _, rolled := m.target.object.
		GetAnnotations()["deployment.kubernetes.io/revision"]; paused(m.target.object) && !rolled &&
		m.target.object.GetKind() == "Deployment" {
		return fmt.Errorf("%s is paused and never had pods: it gets none before it is resumed", m.target)
	}

	if of.ID != at.ID {
		if err := m.leftOver(ctx, m.source, m.target, of); err != nil {
			return err
		}
	}
	if at.Source == "" {
		if err := m.leftOver(ctx, m.target, m.source, at); err != nil {
			return err
		}
	}
	if at.Source != "" {
		if at.Source != m.source.String() || m.replicas >= 0 && at.Replicas != m.replicas {
			return unfinished(at, m.target)
		}
		m.id, m.all, m.got = at.ID, at.Replicas, at.Moved
		if of.ID == at.ID {
			m.given = of.Moved
		}
		fmt.Fprintf(m.Out, "going on with a move that was interrupted\n")
		return nil
	}

	m.id, m.all = m.command.id(), m.source.replicas()
	if m.replicas >= 0 {
		if m.all < m.replicas {
			return fmt.Errorf("%s has %d replicas, of which %d cannot be moved", m.source, m.all, m.replicas)
		}
		m.all = m.replicas
	}

	return nil
}

func unfinished(r record, to *side) error {
	return fmt.Errorf("a move of %d replicas from %s to %s is not finished: finish it first, or take away annotation %s",
		r.Replicas, r.Source, to, recordKey)
}

// leftOver notes that the record of a workload is left over from a move in which it was the source, and which was
// interrupted at its very end. It returns an error if its target has a record of that move: the move is not finished.
func (m *mover) leftOver(ctx context.Context, at, other *side, r record) error {
	if target := *other; r.Target != "" {
		target.name = r.Target
		if err := target.read(ctx); err != nil {
			return err
		}
		if target.object != nil {
			if known, err := readRecord(target.object); err != nil || known.ID == r.ID {
				return errors.Join(err, unfinished(known, &target))
			}
		}
	}
	m.over[at] = r.ID
	return nil
}

// advance takes the next step, or waits until one may be possible.
func (m *mover) advance(ctx context.Context) error {
	s := next(m.all, m.got, m.given, m.surge, m.source, m.target)
	switch {
	case s.raise > 0:
		r := record{ID: m.id, Source: m.source.String(), Replicas: m.all, Moved: m.got + s.raise}
		if err := m.scale(ctx, m.target, s.raise, m.got, r); err != nil {
			return err
		}
		m.got += s.raise
	case s.lower > 0:
		if err := m.scale(ctx, m.source, -s.lower, m.given,
			record{ID: m.id, Target: m.target.name, Moved: m.given + s.lower}); err != nil {
			return err
		}
		m.given += s.lower
	case m.options.DryRun != cmdutil.DryRunNone:
	case m.source.replicas() == 0 && m.given < m.all:
		return fmt.Errorf("%s has no replicas left: somebody else has scaled it down", m.source)
	default:
		if err := m.pause(ctx); err != nil {
			return err
		}
		return m.look(ctx)
	}

	return ctx.Err()
}

// scale changes the replicas of a workload together with its record.
func (m *mover) scale(ctx context.Context, s *side, by, before int64, r record) error {
	return s.apply(ctx, m.options, func(object *unstructured.Unstructured) error {
		known, err := readRecord(object)
		if err != nil {
			return err
		}
		if known.ID == m.id && known.Moved != before ||
			known.ID != m.id && (before > 0 || known.ID != "" && known.ID != m.over[s]) {
			return fmt.Errorf("somebody else goes on with this move")
		}

		replicas := number(object, 1, "spec", "replicas") + by
		if replicas < 0 {
			return fmt.Errorf("somebody else has scaled it down")
		}

		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(object.Object, string(text), "metadata", "annotations",
			recordKey); err != nil {
			return err
		}
		return unstructured.SetNestedField(object.Object, replicas, "spec", "replicas")
	})
}

// end removes the records, first that of the target: without it, the record of the source means nothing.
func (m *mover) end(ctx context.Context) error {
	for _, s := range []*side{m.target, m.source} {
		err := s.apply(ctx, m.options, func(object *unstructured.Unstructured) error {
			if known, err := readRecord(object); err != nil || known.ID != m.id {
				return err
			}
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", recordKey)
			return nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}
