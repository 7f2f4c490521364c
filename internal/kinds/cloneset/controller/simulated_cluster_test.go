package controller

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// simulated is a manager that looks after the CloneSet web in a simulated cluster.
type simulated struct {
	*simulationtest.Workload[*appsv1beta1.CloneSet, *cloneset.Plan]
	kube       *Kube
	controller *Controller
	kind       *Kind
	// servesJobs: the cluster has the kind ImagePullJob.
	servesJobs bool
}

var setKey = simulation.Key{Kind: "CloneSet", Name: "web"}

func simulate(seed uint64, set *appsv1beta1.CloneSet, features cloneset.Features) *simulated {
	s := &simulated{
		Workload: simulationtest.NewWorkload[*appsv1beta1.CloneSet, *cloneset.Plan](seed, setKey),
		kind:     &Kind{Features: features},
	}
	s.NewManager, s.Remember, s.Describe, s.Quiet = s.newManager, s.remember, s.describe, true
	s.AddKubelets()
	set.Name, set.Namespace = setKey.Name, "default"
	if err := errors.Join(Index(context.Background(), s.Cluster), podapply.IndexRevisions(context.Background(), s.Cluster),
		s.IndexField(context.Background(), podapply.NewPullJob(),
			podapply.OwnerIndex, podapply.IndexByController)); err != nil {
		panic(err)
	}
	s.Store(nodeKey("node"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	s.Store(setKey, set)
	s.Start()
	return s
}

func (s *simulated) newManager() {
	s.kube = &Kube{podapply.Reader{API: s.API(), Pods: s.Pods()}}
	s.serveJobs(s.servesJobs)
	s.kind = &Kind{Kube: s.kube, Features: s.kind.Features, Random: s.Rand.IntN}
	s.controller = New(s.kind, s)
	s.Run, s.Forget = s.controller.Run, s.controller.Forget
}

func (s *simulated) remember() (restore func()) {
	kube, controller := s.kube, s.controller
	return func() { s.kube, s.controller = kube, controller }
}

// serveJobs lets the cluster have the kind ImagePullJob, or not.
func (s *simulated) serveJobs(yes bool) {
	s.servesJobs, s.kube.PullJobs = yes, func() bool { return yes }
}

func (s *simulated) set() *appsv1beta1.CloneSet { return s.Object() }

func (s *simulated) active() []*corev1.Pod {
	return slices.DeleteFunc(s.AllPods(), func(pod *corev1.Pod) bool { return !readiness.Active(pod) })
}

var (
	nodeKey, podKey       = simulationtest.NodeKey, simulationtest.PodKey
	claimKey, revisionKey = simulationtest.ClaimKey, simulationtest.RevisionKey
)

func jobKey(name string) simulation.Key { return simulation.Key{Kind: "ImagePullJob", Name: name} }

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, err := s.kube.Snapshot(context.Background(), s.set()); err == nil {
		snapshot.Now, snapshot.Random, snapshot.Features = s.Now(), s.Rand.IntN, s.kind.Features
		b.WriteString("\n" + cloneset.Make(*snapshot).String())
	}
	return b.String() + s.DescribePods()
}
