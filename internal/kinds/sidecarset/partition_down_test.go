package sidecarset_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestPartitionKeepsNoPodDown: a canary of one pod (partition keeps the others) got a bad image, and the SidecarSet
// was set back. The pod that the upgrade left down is the only candidate, and "partition does not keep it down"
// (SS-219).
func TestPartitionKeepsNoPodDown(t *testing.T) {
	for _, partition := range []intstr.IntOrString{intstr.FromInt32(2), intstr.FromString("67%"), intstr.FromString("50%")} {
		part := sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(partition) })
		bad := sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:bad"), part)
		s := sidecarsettest.Snapshot(sidecarsettest.Set(part), bad, 1)
		// The canary: upgraded from proxy:1 to proxy:bad by us, and not ready since.
		canary := s.Pods[0]
		canary.Annotations[pub.SidecarSetInPlaceUpdateState] = sidecarset.States{"mesh": {Revision: bad.Annotations[pub.SidecarSetHash],
			UpdateTimestamp: metav1.NewTime(sidecarsettest.Now.Add(-time.Minute)),
			LastContainerStatuses: map[string]pub.SidecarSetContainerState{"proxy": {ImageID: "id:proxy:1", ContainerID: "c://proxyproxy:1",
				Image: "proxy:1", RunningImage: "proxy:1"}}}}.String()
		containerReady("proxy", false)(canary)
		sidecarsettest.NotReady(canary)
		for i := range 2 {
			s.Pods = append(s.Pods, sidecarsettest.Pod(s.Set, fmt.Sprintf("q%d", i), sidecarsettest.Running, func(*corev1.Pod) {}))
		}
		plan := sidecarset.Make(s)
		for _, v := range plan.Verdicts {
			if v.Pod == canary && v.Action != sidecarset.Upgrade {
				t.Errorf("partition %s keeps the broken canary down for ever: %s %s %s\n%q", partition.String(), v.Action, v.Reason, v.Message, words(plan))
			}
		}
	}
}
