package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/reconcile"
)

var nodeImage = []schema.GroupVersionKind{{Group: "apps.kruise.io", Version: "v1beta1", Kind: "NodeImage"}}

// mapper answers like an API server that serves all kinds, or lacks one, or does not answer.
type mapper struct {
	meta.RESTMapper
	answer atomic.Pointer[error]
	asked  atomic.Int32
}

func (m *mapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	m.asked.Add(1)
	if err := m.answer.Load(); err != nil {
		return nil, *err
	}
	return &meta.RESTMapping{}, nil
}

// CRR-055, IMG-050, OPS-031: controllers of kinds that are served only after the manager's start are started
// then, once, also if the API server does not answer for a moment.
func TestControllersOfKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = reconcile.ServedEvery
		lacking, away := error(&meta.NoKindMatchError{}), errors.New("away")
		m, started := &mapper{}, 0
		if every != 10*time.Second {
			t.Errorf("kinds are looked for every %s", every)
		}
		setup := func(ctx context.Context) error { started++; return ctx.Err() }
		m.answer.Store(&away)
		missing, err := reconcile.Unserved(m, nodeImage...)
		if !missing.Empty() {
			t.Errorf("away: got %q, want nothing missing", missing)
		}
		if err == nil {
			t.Error("away: want an error")
		}
		m.answer.Store(&lacking)
		missing, err = reconcile.Unserved(m, nodeImage...)
		if missing.Kind != "NodeImage" {
			t.Errorf("lacking: got %q missing, want NodeImage", missing)
		}
		if err != nil {
			t.Errorf("lacking: %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- setUpLater(t.Context(), m, every, setup, nodeImage) }()
		for _, answer := range []*error{&lacking, &away, &lacking} {
			m.answer.Store(answer)
			time.Sleep(every)
			if started != 0 {
				t.Fatal("it started before its kinds are served")
			}
			if len(ended) != 0 {
				t.Fatal("it ended before its kinds are served")
			}
		}
		m.answer.Store(nil)
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
		if started != 1 {
			t.Errorf("started %d times, want once", started)
		}
	})
}

// OPS-031: an API server that does not answer at the start gets four tries within 15.5 s. A kind counts as
// missing only by an answer; without any answer there is an error.
func TestAnAPIServerThatIsAwayAtTheStart(t *testing.T) {
	lacking, away := error(&meta.NoKindMatchError{}), errors.New("away")
	for name, test := range map[string]struct {
		back    time.Duration
		then    *error
		missing string
		fails   bool
		took    time.Duration
		asked   int32
	}{
		"it answers":                    {asked: 1},
		"the kind is not served":        {then: &lacking, missing: "NodeImage", asked: 1},
		"back after a second":           {back: time.Second, took: 3 * time.Second, asked: 3},
		"back, and lacks the kind":      {back: time.Second, then: &lacking, missing: "NodeImage", took: 3 * time.Second, asked: 3},
		"back before the last question": {back: 15 * time.Second, took: 15500 * time.Millisecond, asked: 4},
		"away for longer":               {back: time.Minute, fails: true, took: 15500 * time.Millisecond, asked: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mapper{}
				m.answer.Store(test.then)
				if test.back > 0 {
					m.answer.Store(&away)
					time.AfterFunc(test.back, func() { m.answer.Store(test.then) })
				}
				began := time.Now()
				missing, err := unservedAtStart(t.Context(), m, nodeImage)
				took := time.Since(began)
				if missing.Kind != test.missing {
					t.Errorf("missing: got %q, want %q", missing, test.missing)
				}
				if (err != nil) != test.fails {
					t.Errorf("got error %v, want one: %t", err, test.fails)
				}
				if took != test.took {
					t.Errorf("took %s, want %s", took, test.took)
				}
				if n := m.asked.Load(); n != test.asked {
					t.Errorf("questions: got %d, want %d", n, test.asked)
				}
			})
		})
	}
}
