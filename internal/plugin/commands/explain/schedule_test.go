package explain

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
)

// TestWhySchedule: when the next run begins, what holds the one that is due, and how the latest ones went
// (ACJ-061 (part)).
func TestWhySchedule(t *testing.T) {
	cronJob := CronJob("Job", "0 * * * *", Policy("Forbid"), Last(2*time.Hour))
	cronJob.ResourceVersion = ""
	stranger := Made("Job", CronJob("Job", "", func(c *appsv1beta1.AdvancedCronJob) { c.Name, c.UID = "other", "other" }), time.Hour)
	objects := []client.Object{cronJob, Made("Job", cronJob, 2*time.Hour, Started(2*time.Hour)), Made("Job", cronJob, time.Hour, Ended(false)), stranger}
	for _, object := range objects {
		object.SetResourceVersion("")
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1beta1.GroupVersion, batchv1.SchemeGroupVersion})
	for _, kind := range []string{"AdvancedCronJob", "BroadcastJob", "ImageListPullJob"} {
		mapper.Add(appsv1beta1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	now := Noon.Add(3*time.Hour + 5*time.Minute)
	c := fake.NewClientBuilder().WithScheme(Scheme).WithRESTMapper(mapper).WithObjects(objects...).Build()
	r := &Reader{client: c, mapper: mapper, now: func() time.Time { return now }}
	explained := func() string {
		t.Helper()
		e, err := r.Why(t.Context(), workloadkind.AdvancedCronJob, types.NamespacedName{Namespace: "shop", Name: "nightly"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(append(e.Problems, e.Summary...), "\n")
	}
	want := `the run of 2030-01-01T15:00:00Z waits for the end of Job nightly-1893506400, since concurrencyPolicy is Forbid
the next time of the schedule is 2030-01-01T16:00:00Z
Job nightly-1893506400, the run of 2030-01-01T14:00:00Z: active for 65m
Job nightly-1893502800, the run of 2030-01-01T13:00:00Z: failed: so it is`
	if got := explained(); got != want {
		t.Errorf("explained: got\n%s\nwant\n%s", got, want)
	}
	now = Noon.Add(2*time.Hour + 5*time.Minute)
	if got := explained(); !strings.HasPrefix(got, "the next run begins at 2030-01-01T15:00:00Z\nJob") {
		t.Errorf("explained at the end of the first run: got\n%s\nwant the next run in the first line", got)
	}
	cronJob.Spec.Schedule = "often"
	if err := c.Update(t.Context(), cronJob); err != nil {
		t.Fatal(err)
	}
	if got := explained(); !strings.HasPrefix(got, `spec.schedule "often": `) {
		t.Errorf("explained with a bad schedule: got\n%s\nwant the field in the first line", got)
	}
}
