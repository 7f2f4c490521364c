package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	own "github.com/afloat-project/afloat/internal/reconcile"
)

// noJobs has no job, and counts how often the API server is asked.
type noJobs struct {
	client.Client
	asked int
}

func (c *noJobs) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if _, live := object.(*metav1.PartialObjectMetadata); live {
		c.asked++
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "imagepulljobs"}, key.Name)
}

// IMG-054 (part), IMG-096 (part): a tenant deletes 1,500 jobs of one image at once, which has room for them in each
// NodeImage. Whether they are gone is asked of the API server once for all nodes, and not again for each of them, one
// after the other.
func TestManyDeletedJobsAreLookedUpOnce(t *testing.T) {
	const jobs, nodes = 1500, 10
	c := &noJobs{}
	r := &NodeReconciler{API: &own.API{Client: c, Live: c, Now: time.Now}}
	for range nodes {
		for i := range jobs {
			if uid, known := r.jobUID(t.Context(), "shop", fmt.Sprint("job-", i), types.UID(fmt.Sprint("uid-", i))); uid != "" || !known {
				t.Fatalf("job %d: got %q, %t, want that it is gone", i, uid, known)
			}
		}
	}
	if c.asked != jobs {
		t.Errorf("%d deleted jobs on %d nodes: %d reads from the API server, want %d", jobs, nodes, c.asked, jobs)
	}
}

// Deleted jobs are remembered, but not without bound: the oldest are forgotten first.
func TestTheOldestDeletedJobsAreForgotten(t *testing.T) {
	g := goneJobs{}
	for i := range maxGone + 10 {
		g.add(types.UID(fmt.Sprint(i)))
		g.add(types.UID(fmt.Sprint(i)))
	}
	if len(g.known) != maxGone || len(g.order) != maxGone {
		t.Errorf("remembered: got %d and %d, want %d", len(g.known), len(g.order), maxGone)
	}
	if g.known["9"] || !g.known["10"] {
		t.Error("want the first ten forgotten, and no other")
	}
}
