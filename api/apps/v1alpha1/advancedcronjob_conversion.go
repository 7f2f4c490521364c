package v1alpha1

import (
	"encoding/json"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of AdvancedCronJobs (ACJ-110, ACJ-111). Both directions are total. All fields are the same in both versions but for the template of
// ImageListPullJobs, which stands in an annotation of the v1alpha1 object, where users may change it; it is none if it cannot be read.

// ToV1beta1 returns the AdvancedCronJob in the v1beta1 form. It does not modify in.
func (in *AdvancedCronJob) ToV1beta1() *v1beta1.AdvancedCronJob {
	in = in.DeepCopy()
	out := &v1beta1.AdvancedCronJob{ObjectMeta: in.ObjectMeta, Status: in.Status}
	out.Spec.AdvancedCronJobTiming, out.Spec.Template.CommonCronJobTemplate = in.Spec.AdvancedCronJobTiming, in.Spec.Template.CommonCronJobTemplate
	if text, ok := in.Annotations[pub.ImageListTemplate]; ok {
		if err := json.Unmarshal([]byte(text), &out.Spec.Template.ImageListPullJobTemplate); err != nil {
			out.Spec.Template.ImageListPullJobTemplate = nil
		}
	}
	delete(out.Annotations, pub.ImageListTemplate)
	return out
}

// AdvancedCronJobFromV1beta1 returns the AdvancedCronJob in the v1alpha1 form. It does not modify in.
func AdvancedCronJobFromV1beta1(in *v1beta1.AdvancedCronJob) *AdvancedCronJob {
	in = in.DeepCopy()
	out := &AdvancedCronJob{ObjectMeta: in.ObjectMeta, Status: in.Status}
	out.Spec.AdvancedCronJobTiming, out.Spec.Template.CommonCronJobTemplate = in.Spec.AdvancedCronJobTiming, in.Spec.Template.CommonCronJobTemplate
	delete(out.Annotations, pub.ImageListTemplate)
	if in.Spec.Template.ImageListPullJobTemplate != nil {
		setKey(&out.Annotations, pub.ImageListTemplate, string(encode(in.Spec.Template.ImageListPullJobTemplate)))
	}
	return out
}
