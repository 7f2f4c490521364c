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
		lacking, away := error(&meta.NoKindMatchError{}), errors.New("away")
		m, started := &mapper{}, 0
		if servedEvery != 10*time.Second {
			t.Errorf("kinds are looked for every %s", servedEvery)
		}
		l := &latecomer{kinds: nodeImage, mapper: m, every: servedEvery,
			setup: func(context.Context) error { started++; return nil }}
		m.answer.Store(&away)
		if missing, err := l.missing(); !missing.Empty() || err == nil {
			t.Errorf("away: %q %v", missing, err)
		}
		m.answer.Store(&lacking)
		if missing, err := l.missing(); missing.Kind != "NodeImage" || err != nil {
			t.Errorf("lacking: %q %v", missing, err)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Start(t.Context()) }()
		for _, answer := range []*error{&lacking, &away, &lacking} {
			m.answer.Store(answer)
			if time.Sleep(servedEvery); started != 0 || len(ended) != 0 {
				t.Fatal("started")
			}
		}
		m.answer.Store(nil)
		if err := <-ended; err != nil || started != 1 {
			t.Errorf("%v, started %d times", err, started)
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
				missing, err := (&latecomer{kinds: nodeImage, mapper: m}).atStart(t.Context())
				if took := time.Since(began); missing.Kind != test.missing || err != nil != test.fails || took != test.took ||
					m.asked.Load() != test.asked {
					t.Errorf("%q, %v, after %s and %d questions", missing, err, took, m.asked.Load())
				}
			})
		})
	}
}
