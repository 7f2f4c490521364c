package cloneset

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// CS-338 (part): claims are not compared with every template: a set of one MiB has thousands of these, and as
// many claims as its pods want, or as their owner makes besides.
func TestClaimsAreNotComparedWithEveryTemplate(t *testing.T) {
	const many = 10_000
	s := Snapshot{Set: clonesettest.Set(0, clonesettest.Annotated(pub.ResizeClaims, "true"))}
	for i := range many {
		claim := template.VolumeClaimTemplate{}
		claim.Name = fmt.Sprint("data", i)
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		s.Set.Spec.VolumeClaimTemplates = append(s.Set.Spec.VolumeClaimTemplates, claim)
		s.Claims = append(s.Claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data%d-%s-abcde", i,
			s.Set.Name), Labels: map[string]string{pub.CloneSetInstanceID: "abcde"}}})
	}
	p := &planner{in: s, set: s.Set, out: &Plan{Set: s.Set}}
	p.core = podplan.New(workloadOf(s.Set, s.Features), &p.in.Snapshot, &p.out.Plan)
	begin := time.Now()
	if p.growClaims(); len(p.out.ClaimGrowth) != many || time.Since(begin) > 2*time.Second {
		t.Errorf("%d claims grow, after %v", len(p.out.ClaimGrowth), time.Since(begin))
	}
}
