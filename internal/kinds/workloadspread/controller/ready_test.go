package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-026, WS-027: until it is known what users list, pods of such kinds are not let go without a subset, and
// nobody's status is emptied; pods of supported kinds do not wait.
func TestWhatUsersListIsWaitedFor(t *testing.T) {
	l, read := &Listed{log: logr.Discard()}, false
	l.synced = func() bool { return read }
	kinds := kindsOf(t, workloadspread.AllowList{}, "", `{apiVersion: game.example.com/v1, kind: Game, metadata: {name: g}}`)
	kinds.listed, kinds.ready = l.Kinds, l.Ready
	if l.Err() == nil {
		t.Error("whether a kind is listed is not known yet") // WS-027
	}
	index := &Index{}
	custom := spreading(t, "custom", "game.example.com/v1", "Game", "g", "")
	index.Set(custom)
	index.Set(spreading(t, "web", "apps/v1", "ReplicaSet", "r", ""))
	matcher := NewMatcher(index, kinds, logr.Discard())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if spread, err := matcher.Match(over, owned(t, "game.example.com/v1", "Game", "g"), "d"); spread != nil {
		t.Errorf("spread: got %+v, want nil\n%v", spread, err)
	} else if err == nil {
		t.Errorf("error: got nil, want an error\n%v", spread)
	}
	if spread, err := matcher.Match(over, owned(t, "apps/v1", "ReplicaSet", "r"), "d"); spread == nil {
		t.Errorf("spread: got nil, want a value\n%v", err)
	} else if spread.Name != "web" {
		t.Errorf("name of the spread: got %q, want %q\n%v\n%v", spread.Name, "web", spread, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, spread)
	}
	reader := &kubeReader{&Kube{Workloads: kinds}}
	if _, _, err := reader.Target(t.Context(), custom); err == nil {
		t.Error("it is not known yet")
	}
	l.set(`{"workloads":[{"Group":"game.example.com","Kind":"Game"}]}`)
	read = true
	if spread, err := matcher.Match(over, owned(t, "game.example.com/v1", "Game", "g"), "d"); spread == nil {
		t.Errorf("spread: got nil, want a value\n%v\n%v", err, l.Err())
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%v\n%v", err, spread, l.Err())
	} else if got := l.Err(); got != nil {
		t.Errorf("error: unexpected error: %v\n%v\n%v", got, spread, err)
	}
}

// unlisted is a Reader to which the kind of the target is not listed any more.
type unlisted struct {
	simReader
	kinds *Kinds
}

func (u unlisted) Target(ctx context.Context, spread *appsv1beta1.WorkloadSpread) (*workloadspread.Target, bool, error) {
	return (&kubeReader{&Kube{Workloads: u.kinds}}).Target(ctx, spread)
}

// WS-026, WS-133: a kind that is taken off the list leaves the status as it is, which counts pods that are
// still there, and that is told.
func TestAStatusOutlivesTheListing(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 3, workloadspreadtest.Zone("a", "b", "c"))), 2)
	rests(t, s)
	s.Edit(func(spread *appsv1beta1.WorkloadSpread) { spread.Spec.TargetReference.Kind = "Game" })
	s.Events(1 << 20)
	before := s.spread().Status
	s.Start()
	s.pass.Applier.API.Own.Forget(s.spread().UID)
	s.pass.Reader = unlisted{s.reader, kindsOf(t, workloadspread.AllowList{}, "")}
	for range 3 {
		s.Queue.Add()
		s.Manage()
	}
	if got := s.spread().ResourceVersion; got == "" {
		t.Errorf("resource version of the spread: got nothing, want some text\n%+v", s.spread().Status)
	} else if got := len(s.spread().Status.VersionedSubsetStatuses); got != len(before.VersionedSubsetStatuses) {
		t.Errorf("number of versions of the spread: got %d, want %d\n%+v", got, len(before.VersionedSubsetStatuses),
			s.spread().Status)
	} else if got := s.spread().Status.SubsetStatuses[0].Replicas; got != 2 {
		t.Errorf("replicas of the first subset of the spread: got %d, want 2\n%+v", got, s.spread().Status)
	}
	if len(s.Recorded) != 1 {
		t.Errorf("number of events: got %d, want 1\n%q", len(s.Recorded), s.Recorded)
	} else if !strings.Contains(s.Recorded[0], "an administrator has not listed it") {
		t.Errorf("first event: got %q, want it to contain %q\n%q", s.Recorded[0],
			"an administrator has not listed it", s.Recorded)
	}
	if due := s.Queue.Due(); due.IsZero() {
		t.Error("it is not looked at again")
	} else if wait := due.Sub(s.Now()); wait > unknownAfter {
		t.Errorf("it is looked at again after %s, want %s at most", wait, unknownAfter)
	}
}
