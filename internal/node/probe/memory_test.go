package probe

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

// largeHooks is a runtime whose containers have kubelet's annotation with a preStop hook of 1.2 MiB.
type largeHooks struct{}

func (largeHooks) Containers(_ context.Context, uid string) ([]runtime.Container, error) {
	return []runtime.Container{{ID: "containerd://" + uid, Name: "app", PodNamespace: "db", PodName: uid, PodUID: uid, Running: true,
		Annotations: map[string]string{runtime.AnnotationPreStop: `{"exec":{"command":["` + strings.Repeat("x", 1200<<10) + `"]}}`}}}, nil
}

func (largeHooks) Status(context.Context, string) (runtime.Status, error) {
	return runtime.Status{StartedAt: noon}, nil
}

// A PodProbeMarker selects 100 pods of its author on a node, which have large preStop hooks. Probes need nothing of
// these; what the daemon remembers of the containers must fit into its 128 MiB beside the rest.
func TestProbesDoNotKeepTheHooksOfContainers(t *testing.T) {
	c := newContainers(largeHooks{}, fake.NewClientBuilder().Build(), false, func() time.Time { return noon })
	used := func() int {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := used()
	for i := range 100 {
		d := definition()
		d.Pod, d.PodName = types.UID(fmt.Sprint("p", i)), fmt.Sprint("p", i)
		f, err := c.meet(t.Context(), &d, func(string) bool { return false }, false)
		if err != nil || !f.Running {
			t.Fatal(f, err)
		}
	}
	if kept := used() - before; kept > 64<<20 {
		t.Errorf("%d MiB are kept of the containers of 100 pods that are probed, the limit of the daemon is 128 MiB", kept>>20)
	}
	goruntime.KeepAlive(c)
}
