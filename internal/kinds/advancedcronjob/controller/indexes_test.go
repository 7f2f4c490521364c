package controller

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// indexer refuses what it has, as caches do, and fails once.
type indexer struct {
	has    map[string]bool
	failed bool
}

func (i *indexer) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	switch {
	case i.has[field]:
		return errors.New("indexer conflict")
	case len(i.has) == 1 && !i.failed:
		i.failed = true
		return errors.New("timeout")
	}
	i.has[field] = true
	return nil
}

// A kind of children that comes late is followed also if the first attempt failed half way.
func TestIndexesAreAddedOnce(t *testing.T) {
	caches, indexed := &indexer{has: map[string]bool{}}, indexes{}
	if err := indexed.add(t.Context(), caches, advancedcronjob.Job); err == nil {
		t.Fatal("it did not fail")
	}
	for range 2 {
		if err := indexed.add(t.Context(), caches, advancedcronjob.Job); err != nil {
			t.Fatalf("indexed.add(t.Context(), caches, advancedcronjob.Job): unexpected error: %v\n%v", err, caches.has)
		} else if len(caches.has) != 2 {
			t.Fatalf("len(caches.has): got %d, want 2\n%v\n%v", len(caches.has), err, caches.has)
		}
	}
}
