package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

var _ = errors.New
var _ = apierrors.IsNotFound
var _ corev1.Pod
var _ simulation.Request

// As TestAProtectedPodDoesNotStopTheRecreationOfOthers, with maxUnavailable 1.
func TestAProtectedPodWithMaxUnavailable1(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1),
		clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	protected := ""
	s.Answer = protect(&protected)
	s.Edit(clonesettest.Image("nginx:2"))
	s.playFor(60 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 updated; %s is protected: %s", got, protected, s.describe())
	}
}

// As TestAProtectedSpecifiedPodDoesNotStopUpdatesInPlace, with maxUnavailable 1.
func TestAProtectedSpecifiedPodWithMaxUnavailable1(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	protected := s.active()[0].Name
	s.Answer = protect(&protected)
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.playFor(2 * time.Minute)
	s.Edit(clonesettest.Image("nginx:2"))
	s.playFor(60 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 updated; %s is protected: %s", got, protected, s.describe())
	}
}
