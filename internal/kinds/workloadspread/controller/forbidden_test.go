package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// refusing is a reader that has no rights.
type refusing struct {
	client.Reader
	err error
}

func (r refusing) Get(context.Context, types.NamespacedName, client.Object, ...client.GetOption) error {
	return r.err
}

// unwatched is a cache that follows nothing.
type unwatched struct{ cache.Cache }

func (unwatched) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, &meta.NoKindMatchError{}
}

// WS-028: that the manager has no right to read a listed kind is told on the WorkloadSpread; what passes by
// itself is just tried again.
func TestMissingRightsAreTold(t *testing.T) {
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind}}}
	spread := spreadFrom(t, `{targetRef: {apiVersion: game.example.com/v1, kind: Game, name: web}, subsets: [{name: a}]}`)
	read := func(err error) (*workloadspread.Target, error) {
		kinds := kindsOf(t, game, "")
		kinds.live = refusing{kinds.live, err}
		kinds.caches = unwatched{}
		target, _, err := (&kubeReader{&Kube{Workloads: kinds}}).Target(t.Context(), spread)
		return target, err
	}
	target, err := read(apierrors.NewForbidden(schema.GroupResource{Resource: "games"}, "web", errors.New("no rights")))
	if err != nil {
		t.Fatalf("unexpected error: %v\n%+v", err, target)
	} else if target.DesiredError == nil {
		t.Fatalf("desired error: got nil, want an error\n%+v\n%v", target, err)
	} else if !strings.Contains(target.DesiredError.Error(), "no rights") {
		t.Fatalf("desired error: got %q, want it to contain %q\n%+v\n%v", target.DesiredError.Error(), "no rights", target, err)
	}
	if plan := workloadspread.Make(workloadspread.Snapshot{Spread: spread, Target: target,
		Now: workloadspreadtest.Clock}); plan.Reason != workloadspread.ReasonReplicasUnknown {
		t.Errorf("reason: got %q, want %q\n%v", plan.Reason, workloadspread.ReasonReplicasUnknown, plan)
	}
	if _, err := read(errors.New("the server is not there")); err == nil {
		t.Error("no error")
	}
}

// WS-023: a supported kind that is not served has no objects, like any other.
func TestASupportedKindThatIsNotServed(t *testing.T) {
	kinds := kindsOf(t, workloadspread.AllowList{}, "")
	kinds.live = refusing{kinds.live, &meta.NoKindMatchError{GroupKind: workloadkind.CloneSet}}
	kinds.caches = unwatched{}
	target, known, err := (&kubeReader{&Kube{Workloads: kinds}}).Target(t.Context(), spreadFrom(t,
		`{targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}, subsets: [{name: a}]}`))
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v\n%t", err, target, known)
	} else if known {
		t.Errorf("known: got true, want false\n%+v\n%v", target, err)
	} else if target.Exists {
		t.Errorf("exists: got true, want false\n%+v\n%t\n%v", target, known, err)
	} else if target.DesiredError != nil {
		t.Errorf("desired error: unexpected error: %v\n%+v\n%t\n%v", target.DesiredError, target, known, err)
	}
}
