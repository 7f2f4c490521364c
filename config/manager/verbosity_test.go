package manager_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// A replica that stands by for an hour says once that it does, at the verbosity that is shipped (OPS-095,
// OPS-096 (part)).
func TestAReplicaThatStandsByIsQuiet(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	verbosity := ""
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		if v, ok := strings.CutPrefix(arg, "--v="); ok {
			verbosity = v
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		config := textlogger.NewConfig(textlogger.Output(&log))
		if err := config.Verbosity().Set(verbosity); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), textlogger.NewLogger(config)), time.Hour)
		defer cancel()
		leader, seconds, now := "the leader", int32(2*3600), metav1.NewMicroTime(time.Now())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-manager"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now}}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: lease.ObjectMeta, Client: fake.NewClientset(lease).CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: "the other"}},
			LeaseDuration: 2 * time.Hour, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { t.Error("it leads") }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		elector.Run(ctx)
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines:\n%.500s", lines, log.String())
		}
	})
}
