package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSimulatedRestarts (PPM-121 (part)): containers die, recover and end by themselves, daemons are away,
// budgets refuse, caches lag, answers are lost and the manager dies: no container is restarted that has not
// failed itself, none twice, and in the end none is dead.
func TestSimulatedRestarts(t *testing.T) {
	simulationtest.Seeds(t, 200, func(t *testing.T, seed uint64) {
		guard := &budget{}
		w := dying(t, guard)
		w.Rand = simulation.New(seed).Rand
		key, dead, failed := podKey("shop", "a"), true, true // what is so, and what its node has told of this container
		status := func(o client.Object) *corev1.ContainerStatus { return &o.(*corev1.Pod).Status.ContainerStatuses[0] }
		begin := func() { // kubelet starts the container anew
			dead, failed = false, false
			w.Change(key, func(o client.Object) {
				status(o).RestartCount++
				status(o).State.Running.StartedAt = metav1.NewTime(w.Now())
			})
		}
		tell := func() { // the daemon
			state := appsv1alpha1.ProbeSucceeded
			started := status(w.pod("shop", "a")).State.Running.StartedAt.Time
			if w.Now().Sub(started) < 2*time.Second {
				state = appsv1alpha1.ProbeUnknown
			} else if dead {
				state, failed = appsv1alpha1.ProbeFailed, true
			}
			w.Change(listKey("n"), func(o client.Object) {
				list := o.(*appsv1alpha1.NodePodProbe)
				if was := list.Status.PodProbeStatuses[0].ProbeStates[0]; was.State != state || !was.LastTransitionTime.After(started) {
					result := given.Result("a-app", state, "")
					result.LastProbeTime, result.LastTransitionTime = metav1.NewTime(w.Now()), metav1.NewTime(w.Now())
					list.Status.PodProbeStatuses[0].ProbeStates[0] = result
				}
			})
		}
		restart := func() {
			for _, object := range w.List("ContainerRecreateRequest", false) {
				if strings.HasSuffix(object.GetName(), fmt.Sprint("-", status(w.pod("shop", "a")).RestartCount)) {
					begin()
				}
				w.Remove(w.KeyOf("ContainerRecreateRequest", object))
			}
		}
		w.BeforeWrite = func(write simulation.Write, _, after client.Object) {
			if write.Key.Kind == "ContainerRecreateRequest" && (!failed || !strings.HasSuffix(after.GetName(), fmt.Sprint("-", status(w.pod("shop", "a")).RestartCount))) {
				t.Errorf("%s is asked for, and of the container with %d restarts nothing is told: %v", after.GetName(), status(w.pod("shop", "a")).RestartCount, !failed)
			}
		}
		w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
		for range 150 {
			switch w.Rand.IntN(10) {
			case 0:
				dead = !dead
			case 1:
				begin()
			case 2, 3:
				tell()
			case 4:
				restart()
			case 5:
				guard.refuse = w.Chance(0.5)
			case 6:
				w.Pass(time.Duration(w.Rand.IntN(20000)) * time.Millisecond)
			default:
				w.Events(w.Rand.IntN(4))
				w.Manage()
			}
			if w.Dead() {
				w.start()
				w.r.Nodes.Guard = guard
			}
		}
		w.Faults, guard.refuse = simulation.Faults{}, false
		dead = true
		for range 20 {
			tell()
			w.play(time.Minute)
			if restart(); !dead {
				return
			}
		}
		t.Errorf("the container is dead, and is not restarted: %v %s", w.told, w.describe())
	})
}
