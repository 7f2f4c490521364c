package broadcastjob

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// Written holds the parts of a BroadcastJob that are validated. They have the same fields in both versions.
type Written struct {
	job  *appsv1beta1.BroadcastJob
	spec *appsv1beta1.BroadcastJobSpec
	name string
}

// WrittenInV1beta1 wraps a BroadcastJob written in v1beta1.
func WrittenInV1beta1(job *appsv1beta1.BroadcastJob) *Written {
	return &Written{job, &job.Spec, job.Name}
}

// WrittenInV1alpha1 wraps a BroadcastJob written in v1alpha1.
func WrittenInV1alpha1(job *appsv1alpha1.BroadcastJob) *Written {
	return WrittenInV1beta1(&appsv1beta1.BroadcastJob{ObjectMeta: job.ObjectMeta, Spec: job.Spec,
		Status: job.Status})
}

// Validate checks a BroadcastJob that is created, or updated if old is not nil (BJ-020 to BJ-026), and
// returns all errors. The API server's errors about the pod template are added by internal/admission. An
// update is not rejected for errors that the stored object already has.
func Validate(updated, old *Written) field.ErrorList {
	errs := append(validateName(updated.name), validate(updated.spec)...)
	if old == nil {
		return errs
	}
	return fieldcheck.Fresh(errs, append(validateName(old.name), validate(old.spec)...))
}

var nameLetters = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)

// validateName checks the name, which is also a label value and the beginning of host names.
func validateName(name string) (errs field.ErrorList) {
	at := field.NewPath("metadata", "name")
	if name == "" { // the API server generates one
		return nil
	}
	if !nameLetters.MatchString(name) {
		errs = append(errs, field.Invalid(at, name, "must consist of letters, digits and '-', without dots"))
	}
	if len(name) > validation.DNS1035LabelMaxLength {
		errs = append(errs, field.TooLong(at, name, validation.DNS1035LabelMaxLength))
	}
	return errs
}

func validate(spec *appsv1beta1.BroadcastJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := fieldcheck.Amount(spec.Parallelism, path.Child("parallelism"))
	errs = append(errs, validateTemplate(spec, path.Child("template"))...)
	errs = append(errs, validateCompletion(&spec.CompletionPolicy, path.Child("completionPolicy"))...)
	failure, at := &spec.FailurePolicy, path.Child("failurePolicy")
	switch failure.Type {
	case "", appsv1beta1.FailurePolicyFailFast, appsv1beta1.FailurePolicyContinue,
		appsv1beta1.FailurePolicyPause:
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), failure.Type,
			[]appsv1beta1.FailurePolicyType{
				appsv1beta1.FailurePolicyFailFast, appsv1beta1.FailurePolicyContinue,
				appsv1beta1.FailurePolicyPause}))
	}

	return append(errs, fieldcheck.NotNegative(&failure.RestartLimit, at.Child("restartLimit"))...)
}

func validateTemplate(spec *appsv1beta1.BroadcastJobSpec, path *field.Path) (errs field.ErrorList) {
	if err := spec.Template.DecodeError(); err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", err.Error())}
	}
	if spec.Template.IsZero() {
		return field.ErrorList{field.Required(path, "it says what the pods are like")}
	}

	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	default:
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}

	for _, label := range []string{pub.BroadcastJobName, pub.BroadcastJobUID} {
		if value := spec.Template.Labels[label]; value != "" {
			errs = append(errs, field.Invalid(path.Child("metadata", "labels").Key(label), value,
				"must not be set: it tells the job's pods from others, and the controller sets it"))
		}
	}

	errs = append(errs, fieldcheck.NodeRequirements(&spec.Template.Spec, path.Child("spec"))...)
	return append(errs, fieldcheck.Images(&spec.Template.Spec, path.Child("spec"))...)
}

// validateCompletion checks the completion policy. A job that never ends can have neither a deadline nor a
// time to live.
func validateCompletion(
	policy *appsv1beta1.BroadcastJobCompletionPolicy, path *field.Path,
) (errs field.ErrorList) {
	deadline, ttl := path.Child("activeDeadlineSeconds"), path.Child("ttlSecondsAfterFinished")
	switch policy.Type {
	case "", appsv1beta1.CompletionAlways:
	case appsv1beta1.CompletionNever:
		const never = "must not be set with type Never: such a job does not end"
		if policy.TTLSecondsAfterFinished != nil {
			errs = append(errs, field.Invalid(ttl, *policy.TTLSecondsAfterFinished, never))
		}
		if policy.ActiveDeadlineSeconds != nil {
			errs = append(errs, field.Invalid(deadline, *policy.ActiveDeadlineSeconds, never))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), policy.Type,
			[]appsv1beta1.CompletionPolicyType{appsv1beta1.CompletionAlways, appsv1beta1.CompletionNever}))
	}
	if policy.ActiveDeadlineSeconds != nil && *policy.ActiveDeadlineSeconds < 0 {
		errs = append(errs, field.Invalid(deadline, *policy.ActiveDeadlineSeconds,
			"must be greater than or equal to 0"))
	}

	return append(errs, fieldcheck.NotNegative(policy.TTLSecondsAfterFinished, ttl)...)
}

// Warnings returns warnings about changes that an update does not bring about (BJ-025).
func Warnings(updated, old *Written) []string {
	switch {
	case old == nil || updated.spec.Template.Equal(old.spec.Template):
		return nil
	case ended(old.job):
		return []string{"spec.template: the job has ended, and does not start again; create another one"}
	case old.job.Status.Active+old.job.Status.Succeeded+old.job.Status.Failed > 0:
		return []string{
			"spec.template: pods that were created already stay as they are; only later ones are made from the new template"}
	}
	return nil
}

func ended(job *appsv1beta1.BroadcastJob) bool {
	yes, _ := Ended(job)
	return yes
}
