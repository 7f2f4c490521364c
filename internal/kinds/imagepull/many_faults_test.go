package imagepull

import (
	"fmt"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-041 (part): anybody who runs a pod can send a review to the port of the webhooks: an update of a job whose sandbox has, before and
// after, thousands of keys of container runtimes. The faults of both are compared in the time that it takes to find them.
func TestManyFaultsDoNotHoldUpTheWebhook(t *testing.T) {
	job := func(count int, prefix string) *appsv1beta1.ImagePullJob {
		return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{}}
			for i := range count {
				j.Spec.SandboxConfig.Labels[fmt.Sprintf("io.kubernetes.cri.%s%d", prefix, i)] = ""
			}
		})
	}
	took := func(count int) time.Duration {
		updated, old := job(count, "a"), job(count, "b")
		spent := cputime.Start(t)
		if err := CheckJob(updated, old); err == nil {
			t.Fatal("no error")
		}
		return spent()
	}
	few, many := took(2_000), took(16_000)
	if limit := 16*few + 100*time.Millisecond; many > limit {
		t.Errorf("16,000 keys take %s where 2,000 take %s: got %.0f times as long for eight times as many, want about 8; a request has room for 40,000",
			many, few, float64(many)/float64(few))
	}
}
