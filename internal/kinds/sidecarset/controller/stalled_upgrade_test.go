package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// OPS-099: an upgrade to an image that does not exist is told after 30 s, with the pods and their own
// reasons, and every ten minutes; what the user asked for is not.
func TestAnUpgradeThatStandsStillIsTold(t *testing.T) {
	partition := func(set *appsv1beta1.SidecarSet) { set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(3)) }
	paused := func(set *appsv1beta1.SidecarSet) { set.Spec.UpdateStrategy.Paused = true }
	nothing := func(*appsv1beta1.SidecarSet) {}
	for name, test := range map[string]struct {
		image  string
		change func(*appsv1beta1.SidecarSet)
		times  int
		want   []string
	}{
		"one at a time": {"proxy:bad", nothing, 3,
			[]string{"MaxUnavailable: ", "maxUnavailable is 1", "pod default/web-", "ErrImagePull"}},
		"all at once": {"proxy:bad", sidecarsettest.AllAtOnce, 3,
			[]string{"PodsNotReady: 3 of 3 pods", "pod default/web-0", "pod default/web-1", "pod default/web-2"}},
		"partition":            {"proxy:bad", partition, 0, nil},
		"paused":               {"proxy:bad", paused, 0, nil},
		"an image that exists": {"proxy:2", nothing, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(), 3)
			s.Node.Digests["proxy:bad"] = ""
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			s.change(test.change, sidecarsettest.Image("proxy", test.image))
			s.tells = true
			for end := s.Now().Add(25 * time.Minute); s.Now().Before(end); s.Pass(time.Second) {
				s.Round()
			}
			var told []string
			for _, event := range s.Recorded {
				if strings.Contains(event, "Warning "+waiting.EventReason) {
					told = append(told, event)
				}
			}
			if len(told) != test.times {
				t.Fatalf("told %d times: %q", len(told), told)
			}
			for _, part := range test.want {
				if !strings.Contains(told[0], part) {
					t.Errorf("%q lacks %q", told[0], part)
				}
			}
		})
	}
}

// OPS-099: a pod of another team that crashes long after the upgrade is no news of the SidecarSet.
func TestAPodThatCrashesOnItsOwnIsNotTold(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 3)
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Change(podKey("web-0"), func(o client.Object) { sidecarsettest.NotReady(o.(*corev1.Pod)) })
	s.tells, s.Recorded = true, nil
	for end := s.Now().Add(time.Hour); s.Now().Before(end); s.Pass(time.Second) {
		if !s.Manage() {
			s.Events(99)
		}
	}
	if text := strings.Join(s.Recorded, "\n"); strings.Contains(text, waiting.EventReason) {
		t.Errorf("events: got %q, want it not to contain %q", text, waiting.EventReason)
	}
}
