package controller

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// copying records the lists that copy what the caches have.
type copying struct {
	client.Client
	lists, copies int
}

func (c *copying) List(_ context.Context, _ client.ObjectList, options ...client.ListOption) error {
	of := (&client.ListOptions{}).ApplyOptions(options)
	if c.lists++; of.UnsafeDisableDeepCopy == nil || !*of.UnsafeDisableDeepCopy {
		c.copies++
	}
	return nil
}

// A tenant has 150 BroadcastJobs of a megabyte with the finalizer of a run and without an owner. They are found in the
// caches and let go one by one: a copy of all of them at once would take as much memory again as the caches do.
func TestOrphansAreNotCopied(t *testing.T) {
	c := &copying{}
	r := &Reconciler{API: &reconcile.API{Client: c, Live: c, Now: time.Now}}
	for _, kind := range advancedcronjob.Kinds {
		r.served.Add(kind)
	}
	if err := r.releaseOrphans(t.Context(), types.NamespacedName{Namespace: "shop", Name: nobody}, ""); err != nil {
		t.Fatal(err)
	}
	if c.lists == 0 || c.copies > 0 {
		t.Errorf("%d lists, of which %d copy what the caches have: want none that does", c.lists, c.copies)
	}
}
