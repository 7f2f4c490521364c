package get

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// manifests are an object of every kind of OPS-164.
func manifests(version string) []string {
	var all []string
	for _, kind := range []string{"CloneSet", "StatefulSet", "DaemonSet", "UnitedDeployment", "BroadcastJob", "AdvancedCronJob",
		"ContainerRecreateRequest", "ImagePullJob", "ImageListPullJob", "SidecarSet", "ResourceDistribution", "WorkloadSpread", "PersistentPodState"} {
		all = append(all, "{apiVersion: apps.kruise.io/"+version+", kind: "+kind+", metadata: {name: one}, spec: {replicas: 3, schedule: '* * * * *', "+
			"podName: web-1}, status: {replicas: 3, desired: 2, phase: Completed, updatedReplicas: 1}}")
	}
	return append(all, "{apiVersion: apps.kruise.io/v1alpha1, kind: PodProbeMarker, metadata: {name: one}}",
		"{apiVersion: policy.kruise.io/"+version+", kind: PodUnavailableBudget, metadata: {name: one}, status: {totalReplicas: 5, usedBy: web-1}}",
		"{apiVersion: apps.kruise.io/"+version+", kind: CloneSet, metadata: {name: elsewhere, namespace: other}}",
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: native}}")
}

// testGet: get all lists what the server serves of the kinds, with the printed columns of the server; all
// else is kubectl's get.
func testGet(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			s := plugintest.NewIn(t, "shop", version, manifests(version)...)
			var text string
			for _, line := range []string{"all", "all -A", "all -n other", "all -o name", "all -n other -o yaml", "all --no-headers",
				"all -l a=b", "clone", "sts", "asts,ads"} {
				text += s.Play(t, New, append([]string{"get"}, strings.Fields(line)...)...)
			}
			s.Without("uniteddeployments.apps.kruise.io", "broadcastjobs.apps.kruise.io")
			text += s.Play(t, New, "get", "all", "-o", "name")
			for _, name := range resources() {
				s.Without(name)
			}
			text += s.Play(t, New, "get", "all")
			golden.Compare(t, version, text)
		})
	}
}

// safe is a buffer that may be read while it is written.
type safe struct {
	lock sync.Mutex
	bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.Buffer.Write(p)
}

func (s *safe) has(text string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return strings.Contains(s.String(), text)
}

// OPS-164: get all lists objects of all kinds that the server serves, and -w watches all of them at once;
// Rollouts are among them if they are installed.
func TestGetAllListsAllServedKinds(t *testing.T) {
	t.Run("lists", testGet)
	s := plugintest.NewIn(t, "shop", "v1beta1", manifests("v1beta1")...)
	s.Serve("rollouts.kruise.io/v1beta1", "Rollout", "rollouts")
	s.Put(t, "{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: one}}")
	out := &safe{}
	cmd := New(s.Factory(t), genericiooptions.IOStreams{Out: out, ErrOut: out})
	cmd.SetArgs([]string{"all", "-w"})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Execute() }()
	wants := func(text string) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return out.has(text), nil
		}); err != nil {
			t.Fatalf("no %q in:\n%s", text, out.String())
		}
	}
	s.AwaitWatches(t, len(resources()))
	wants("cloneset.apps.kruise.io/one")
	wants("rollout.rollouts.kruise.io/one")
	wants("podunavailablebudget.policy.kruise.io/one")
	wants("workloadspread.apps.kruise.io/one")
	s.Put(t, "{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: second}}")
	wants("cloneset.apps.kruise.io/second")
	s.Change(t, "rollouts", "one", func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} })
	s.Put(t, "{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: third}}")
	wants("sidecarset.apps.kruise.io/third")
	s.EndWatches()
	s.Close()
	if err := <-ended; err != nil {
		t.Errorf("watching until the server stops: %v", err)
	}
}
