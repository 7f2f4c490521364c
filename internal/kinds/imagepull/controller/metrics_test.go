package controller

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-205 (part): a tenant creates jobs that select no node, so that they end at once, each with an owner of another
// kind that does not exist; a kind may have a megabyte. What owners are called must not stay in the metrics, and thereby
// in the memory of the manager, for ever.
func TestKindsOfOwnersDoNotFillTheMetrics(t *testing.T) {
	m := newMeters()
	for i := range 2000 {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Name = fmt.Sprint("job-", i)
			j.OwnerReferences = []metav1.OwnerReference{{Kind: fmt.Sprint("Kind", i), Name: "x", Controller: new(true)}}
		})
		m.observe(job, &imagepull.JobPlan{Status: &appsv1beta1.ImagePullJobStatus{CompletionTime: imagepulltest.At(0), Failed: 1}}, true)
	}
	if got := testutil.CollectAndCount(m.results); got != 2 {
		t.Errorf("2000 jobs of owners of made-up kinds: got %d series, want 2", got)
	}
	if got := testutil.ToFloat64(m.results.WithLabelValues("other", "failed")); got != 2000 {
		t.Errorf("nodes that failed for jobs of other kinds: got %v, want 2000", got)
	}
}
