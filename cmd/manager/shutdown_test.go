package main

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"
)

// OPS-101: after SIGTERM the manager is not ready, and goes on for the delay while Services still send
// requests to it. Without a delay, and before it serves anything, it ends at once.
func TestTheManagerOutlastsTheSignalWhileItIsStillCalled(t *testing.T) {
	for name, test := range map[string]struct {
		delay   time.Duration
		serving bool
		all     bool
		want    time.Duration
	}{
		"serving":                         {10 * time.Second, true, false, 10 * time.Second},
		"serving, no delay":               {0, true, false, 0},
		"before it has started":           {10 * time.Second, false, false, 0},
		"serving, and no replica is left": {10 * time.Second, true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signal, term := context.WithCancel(t.Context())
				defer term()
				s := &shutdown{signal: signal, delay: test.delay, all: func(context.Context) bool { return test.all }}
				ctx, cancel := s.context()
				defer cancel()
				s.serving.Store(test.serving)
				time.Sleep(time.Hour) // of the fake clock
				synctest.Wait()
				if err := s.ready(nil); err != nil {
					t.Fatalf("readiness before the signal: %v", err)
				}
				if err := ctx.Err(); err != nil {
					t.Fatalf("it ended before the signal: %v", err)
				}
				began := time.Now()
				term()
				if s.ready(nil) == nil {
					t.Error("ready after the signal")
				}
				<-ctx.Done()
				if took := time.Since(began); took != test.want {
					t.Errorf("ended %s after the signal, want %s", took, test.want)
				}
			})
		})
	}
}

// Whether all replicas end is read off the Deployment; a manager that may not read it, or is run without one,
// keeps its delay.
func TestWhetherNoReplicaStays(t *testing.T) {
	deployment := func(replicas *int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: managerDeployment}, Spec: appsv1.DeploymentSpec{Replicas: replicas}}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    bool
	}{"none": {[]client.Object{deployment(new(int32(0)))}, true}, "two": {[]client.Object{deployment(new(int32(2)))}, false},
		"by default one": {[]client.Object{deployment(nil)}, false}, "no Deployment": {nil, false}} {
		reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.objects...).Build()
		if got := noneStays(reader, "kruise-system")(t.Context()); got != test.want {
			t.Errorf("%s: no replica stays: got %t, want %t", name, got, test.want)
		}
	}
}

// A manager that ends by itself, for instance because it lost its lease, leaves no waiting goroutine behind.
func TestAManagerThatEndsByItselfWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signal, term := context.WithCancel(t.Context())
		s := &shutdown{signal: signal, delay: time.Hour, all: func(context.Context) bool { return false }}
		s.serving.Store(true)
		began := time.Now()
		ctx, cancel := s.context()
		term()
		synctest.Wait()
		cancel()
		<-ctx.Done()
		synctest.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

// OPS-101: if a worker hangs, the lease is released nevertheless, so that another replica can lead.
func TestTheLeaseIsReleasedWhenAWorkerHangs(t *testing.T) {
	server := httptest.NewServer(&lateServer{})
	defer server.Close()
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	clients := clientfake.NewClientset()
	lease, renew, retry := 4*time.Second, 3*time.Second, 20*time.Millisecond
	options := ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(), LeaderElection: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		LeaderElectionResourceLockInterface: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "sys", Name: "lock"},
			Client: clients.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}}}
	endWithin(50*time.Millisecond, &options)
	mgr, err := ctrl.NewManager(&rest.Config{Host: server.URL}, options)
	if err != nil {
		t.Fatal(err)
	}
	works, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error { close(works); <-goOn; return nil })); err != nil {
		t.Fatal(err)
	}
	holder := func() string {
		lock, err := clients.CoordinationV1().Leases("sys").Get(t.Context(), "lock", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *lock.Spec.HolderIdentity
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	<-works
	if got := holder(); got != "me" {
		t.Errorf("%q leads", got)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("nothing is told of what hangs")
	}
	if got := holder(); got != "" {
		t.Errorf("%q holds the lease", got)
	}
}

// OPS-101: the pod's termination grace period is longer than the manager needs at most: the delay, slow
// controllers and requests, and a late release of the lease.
func TestTheShippedGracePeriodIsAboveWhatTheManagerNeeds(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	o, err := parseOptions(pod.Containers[0].Args)
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if o.shutdownDelay < 5*time.Second {
		t.Errorf("the delay of the shutdown is %s, want 5s at least", o.shutdownDelay)
	}
	if need := o.shutdownDelay + gracefulStop + o.renewDeadline; grace < need+5*time.Second {
		t.Errorf("the grace is %s, the manager may need %s", grace, need)
	}
}
