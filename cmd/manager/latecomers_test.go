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

// mapper answers as an API server that serves all kinds, or lacks one, or is away.
type mapper struct {
	meta.RESTMapper
	answer atomic.Pointer[error]
}

func (m *mapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	if err := m.answer.Load(); err != nil {
		return nil, *err
	}
	return &meta.RESTMapping{}, nil
}

// CRR-055, IMG-050: controllers of kinds that come after the manager's start are started then, once; neither a kind that is missing nor an API server
// that is away for a moment leaves them out.
func TestControllersOfKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lacking, away := error(&meta.NoKindMatchError{}), errors.New("away")
		m, started := &mapper{}, 0
		l := &latecomer{kinds: []string{"NodeImage"}, mapper: m, every: servedEvery, setup: func(context.Context) error { started++; return nil }}
		m.answer.Store(&away)
		if missing, err := l.missing(); missing != "" || err == nil {
			t.Errorf("away: %q %v", missing, err)
		}
		m.answer.Store(&lacking)
		if missing, err := l.missing(); missing != "NodeImage" || err != nil {
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
