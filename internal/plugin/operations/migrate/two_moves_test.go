package migrate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// A move from a Deployment to one CloneSet is interrupted half-way; somebody moves replicas of the same
// Deployment to another CloneSet; then the first move goes on. Together there are as many replicas as before.
func TestTwoMovesFromOneSourceLoseNoReplicas(t *testing.T) {
	moves := 0
	unique := func(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
		moves++
		id := fmt.Sprint("m", moves)
		return newCommand(f, streams, time.Microsecond, func() string { return id })
	}
	f := newFleet(t, "v1beta1", 10, 0)
	f.Put(t, cloneSet("v1beta1", "other", 0))
	run := func(line string) error {
		return f.Run(t, unique, append([]string{"migrate"}, strings.Fields(line)...)...).Err
	}
	replicas := func(resource, name string) int64 {
		n, _, _ := unstructured.NestedInt64(f.Get(t, resource, name).Object, "spec", "replicas")
		return n
	}
	sum := func() int64 {
		return replicas("deployments", "web") + replicas("clonesets", "web") + replicas("clonesets", "other")
	}

	// The first one dies when its target has got 3 and its source has given 2.
	f.Before = func(r plugintest.Request) error {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.Resource, "deployments") && replicas("clonesets", "web") == 3 {
			return errors.New("died")
		}
		return nil
	}
	if err := run(forward + " --replicas=5"); err == nil {
		t.Fatal("it was not interrupted")
	}
	f.Before = nil
	t.Log("interrupted:", f.replicas(), "sum", sum())

	second := run(forward + " --dst-name=other --replicas=3")
	if second == nil || !strings.Contains(second.Error(), "is not finished") {
		t.Errorf("second move: got %v, want an error that the first one is not finished", second)
	}
	t.Log("second:", second, f.replicas(), "sum", sum())
	first := run(forward + " --replicas=5")
	if got := sum(); first != nil || got != 10 {
		t.Errorf("first move again: got %v and %d replicas together, want 10: the source has %d", first, got, replicas("deployments", "web"))
	}
}
