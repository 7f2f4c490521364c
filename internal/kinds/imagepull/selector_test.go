package imagepull

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-034 (part), IMG-035 (part): selectors are read again for every job of the namespace at each event of a
// pod, and of a NodeImage, before the events of others: 50,000 values took 15 ms for each job.
func TestSelectorsHaveFewTerms(t *testing.T) {
	selector := func(values int) metav1.LabelSelector {
		s := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a",
			Operator: metav1.LabelSelectorOpIn}}}
		for i := range values {
			s.MatchExpressions[0].Values = append(s.MatchExpressions[0].Values, fmt.Sprint("v", i))
		}
		return s
	}
	for name, set := range map[string]func(*appsv1beta1.ImagePullJob, metav1.LabelSelector){
		"podSelector": func(j *appsv1beta1.ImagePullJob, s metav1.LabelSelector) {
			j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{LabelSelector: s}
		},
		"selector": func(j *appsv1beta1.ImagePullJob, s metav1.LabelSelector) {
			j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{LabelSelector: s}
		},
	} {
		of := func(values int) *appsv1beta1.ImagePullJob {
			return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { set(j, selector(values)) })
		}
		if err := CheckJob(of(fieldcheck.MostSelectorTerms-2), nil); err != nil {
			t.Errorf("as many terms as there may be, %s: %v", name, err)
		}
		if err := CheckJob(of(fieldcheck.MostSelectorTerms-1), nil); err == nil {
			t.Errorf("%s: one term too many: got nil, want an error", name)
		} else if !strings.Contains(err.Error(), "spec."+name+" has 201 labels and values, at most 200 are allowed") {
			t.Errorf("%s: one term too many: got %q, want it to contain %q", name, err.Error(),
				"spec."+name+" has 201 labels and values, at most 200 are allowed")
		}
		if err := CheckJob(of(fieldcheck.MostSelectorTerms-1), of(fieldcheck.MostSelectorTerms-1)); err != nil {
			t.Errorf("%s, what is stored already: %v", name, err)
		}
	}
}
