package leadermetrics_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/afloat-project/afloat/internal/platform/leadermetrics"
)

// OPS-092 (part): the registry of controller-runtime serves the counter of slow paths, which
// controller-runtime itself does not register, and the gauge that it does register still shows who leads.
func TestSlowPathsAreServed(t *testing.T) {
	if err := leadermetrics.Register(metrics.Registry); err != nil {
		t.Fatal(err)
	}
	clients := clientfake.NewClientset()
	updates, renewed := atomic.Int32{}, make(chan struct{})
	clients.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch updates.Add(1) {
		case 1:
			return true, nil, errors.New("somebody else wrote")
		case 3: // the lease has been renewed by the slow path, and is once more
			close(renewed)
		}
		return false, nil, nil
	})
	leads := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: "lock", LeaseDuration: time.Hour, RenewDeadline: 30 * time.Minute, RetryPeriod: 10 * time.Millisecond,
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "sys", Name: "lock"}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}},
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := func(leader, slow string) error {
		return testutil.GatherAndCompare(metrics.Registry, strings.NewReader(`# HELP leader_election_master_status Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.
# TYPE leader_election_master_status gauge
leader_election_master_status{name="lock"} `+leader+"\n"+slow), "leader_election_master_status", "leader_election_slowpath_total")
	}
	if err := served("0", ""); err != nil {
		t.Errorf("metrics of a replica that does not lead: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	<-leads
	select {
	case <-renewed:
	case <-time.After(time.Minute):
		t.Errorf("updates of the lease within a minute: got %d, want 3 or more", updates.Load())
	}
	err = served("1",
		`# HELP leader_election_slowpath_total Renewals of the lease that had to read it first. 'name' is the name of the lease.
# TYPE leader_election_slowpath_total counter
leader_election_slowpath_total{name="lock"} 1
`)
	if err != nil {
		t.Errorf("metrics of a replica that leads: %v", err)
	}
	cancel()
	<-ended
}
