package podprobemarker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/cputime"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// PPM-120 (part): a tenant creates a pod of many containers whose annotation has many liveness probes, of none of them: the webhook of
// pods looks each container up once, and not in all of them.
func TestManyMovedProbesDoNotHoldUpTheWebhook(t *testing.T) {
	took := func(count int) time.Duration {
		pod := given.Pod("a", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "u", Controller: new(true)}}
			p.Annotations = map[string]string{pub.UsingEnhancedLiveness: "true",
				pub.LivenessProbes: "[" + strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, count), ",") + "]"}
			p.Spec.Containers = nil
			for i := range count {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint(i)})
			}
		})
		spent := cputime.Start(t)
		Moved(pod)
		return spent()
	}
	few, many := took(1_000), took(16_000)
	if limit := 32*few + 100*time.Millisecond; many > limit {
		t.Errorf("16,000 containers and probes take %s where 1,000 take %s: got %.0f times as long for 16 times as many, want about 16", many, few,
			float64(many)/float64(few))
	}
}
