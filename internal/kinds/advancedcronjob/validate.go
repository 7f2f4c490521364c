package advancedcronjob

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/schedule"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// names matches the names that an AdvancedCronJob may have.
var names = regexp.MustCompile(`^[a-zA-Z0-9\-]+$`)

// longestPull is how long, in seconds, an ImageListPullJob of a schedule may take.
const longestPull = 86400

// CheckBroadcastJob validates a BroadcastJob without a name by the rules of that kind. The pod template is
// validated elsewhere.
type CheckBroadcastJob func(job *appsv1beta1.BroadcastJob) field.ErrorList

// Validate returns all errors of an AdvancedCronJob (ACJ-020 to ACJ-028) except those of its pod template.
// old is nil on create. Errors that old already has are not reported.
func Validate(updated, old *appsv1beta1.AdvancedCronJob, broadcast CheckBroadcastJob) field.ErrorList {
	errs := check(updated, broadcast)
	if old == nil {
		return errs
	}
	return append(fieldcheck.Fresh(errs, check(old, broadcast)), checkUpdate(updated, old)...)
}

func check(cronJob *appsv1beta1.AdvancedCronJob, broadcast CheckBroadcastJob) field.ErrorList {
	var errs field.ErrorList
	spec, path := &cronJob.Spec, field.NewPath("spec")
	if !names.MatchString(cronJob.Name) || len(cronJob.Name) > maxName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), cronJob.Name,
			fmt.Sprintf("must consist of letters, digits and '-', and have at most %d characters", maxName)))
	}

	errs = append(errs, checkTimes(spec, path)...)
	errs = append(errs, fieldcheck.NotNegative(spec.StartingDeadlineSeconds,
		path.Child("startingDeadlineSeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.SuccessfulJobsHistoryLimit,
		path.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.FailedJobsHistoryLimit,
		path.Child("failedJobsHistoryLimit"))...)

	switch spec.ConcurrencyPolicy {
	case "", appsv1beta1.ConcurrencyAllow, appsv1beta1.ConcurrencyForbid, appsv1beta1.ConcurrencyReplace:
	default:
		errs = append(errs, field.NotSupported(path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy,
			[]appsv1beta1.ConcurrencyPolicy{
				appsv1beta1.ConcurrencyAllow, appsv1beta1.ConcurrencyForbid, appsv1beta1.ConcurrencyReplace}))
	}
	if given := Templates(&spec.Template); len(given) != 1 {
		errs = append(errs, field.Forbidden(path.Child("template"),
			fmt.Sprintf(
				"exactly one of jobTemplate, broadcastJobTemplate and imageListPullJobTemplate must be set, there are %d",
				len(given))))
	}

	return append(errs, checkTemplates(spec, path.Child("template"), broadcast)...)
}

// checkTimes validates the schedule and its time zone.
func checkTimes(spec *appsv1beta1.AdvancedCronJobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("schedule")
	_, prefix, err := schedule.Parse(spec.Schedule)
	switch {
	case spec.Schedule == "":
		errs = append(errs, field.Required(at, "a cron expression, such as \"30 2 * * *\""))
	case err != nil:
		errs = append(errs, field.Invalid(at, cut(spec.Schedule), err.Error()))
	case prefix != "":
		if spec.TimeZone != nil {
			errs = append(errs, field.Invalid(at, cut(spec.Schedule),
				"a time zone in the schedule and spec.timeZone exclude each other"))
		}
		if _, err := schedule.Zone(prefix); err != nil {
			errs = append(errs, field.Invalid(at, cut(spec.Schedule),
				"the time zone in the schedule: "+err.Error()))
		}
	}
	if spec.TimeZone != nil {
		if _, err := schedule.Zone(*spec.TimeZone); err != nil {
			errs = append(errs, field.Invalid(path.Child("timeZone"), cut(*spec.TimeZone), err.Error()))
		}
	}

	return errs
}

// checkTemplates returns the errors for which children would be rejected.
func checkTemplates(
	spec *appsv1beta1.AdvancedCronJobSpec, path *field.Path, broadcast CheckBroadcastJob,
) field.ErrorList {
	var errs field.ErrorList
	if template := spec.Template.JobTemplate; template != nil {
		errs = append(errs, checkJob(template.DecodeError(), &template.Spec, path.Child("jobTemplate"))...)
	}
	if template := spec.Template.BroadcastJobTemplate; template != nil {
		at := path.Child("broadcastJobTemplate")
		if err := template.Spec.Template.DecodeError(); err != nil {
			errs = append(errs, field.Invalid(at.Child("spec", "template"), field.OmitValueType{},
				err.Error()))
		} else if broadcast != nil {
			for _, err := range broadcast(&appsv1beta1.BroadcastJob{Spec: template.Spec}) {
				err.Field = at.String() + "." + err.Field
				errs = append(errs, err)
			}
		}
	}
	if template := spec.Template.ImageListPullJobTemplate; template != nil {
		if spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyAllow {
			errs = append(errs, field.Invalid(field.NewPath("spec", "concurrencyPolicy"),
				spec.ConcurrencyPolicy, "with imageListPullJobTemplate it must be Replace or Forbid"))
		}
		errs = append(errs, checkList(&template.Spec, path.Child("imageListPullJobTemplate", "spec"))...)
	}

	return errs
}

func checkJob(undecodable error, job *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if undecodable != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, undecodable.Error())}
	}

	var errs field.ErrorList
	path = path.Child("spec")
	switch policy := job.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	default:
		errs = append(errs, field.NotSupported(path.Child("template", "spec", "restartPolicy"), policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}

	errs = append(errs, fieldcheck.NotNegative(job.Parallelism, path.Child("parallelism"))...)
	errs = append(errs, fieldcheck.NotNegative(job.Completions, path.Child("completions"))...)
	errs = append(errs, fieldcheck.NotNegative(job.BackoffLimit, path.Child("backoffLimit"))...)
	errs = append(errs, fieldcheck.NotNegative(job.TTLSecondsAfterFinished,
		path.Child("ttlSecondsAfterFinished"))...)
	errs = append(errs, fieldcheck.NotNegative(job.ActiveDeadlineSeconds,
		path.Child("activeDeadlineSeconds"))...)
	return errs
}

func checkList(spec *appsv1beta1.ImageListPullJobSpec, path *field.Path) field.ErrorList {
	errs := moved(imagepull.CheckList(&appsv1beta1.ImageListPullJob{Spec: *spec}, nil), path)
	completion := path.Child("completionPolicy")
	policy := &spec.CompletionPolicy
	if policy.Type == appsv1beta1.CompletionNever {
		errs = append(errs, field.NotSupported(completion.Child("type"), policy.Type,
			[]appsv1beta1.CompletionPolicyType{appsv1beta1.CompletionAlways}))
	}
	if deadline := policy.ActiveDeadlineSeconds; deadline != nil {
		at := completion.Child("activeDeadlineSeconds")
		if *deadline > longestPull {
			errs = append(errs, field.Invalid(at, *deadline,
				fmt.Sprintf("must be less than or equal to %d", longestPull)))
		}
		if spec.PullPolicy != nil && spec.PullPolicy.TimeoutSeconds != nil &&
			*deadline < int64(*spec.PullPolicy.TimeoutSeconds) {
			errs = append(errs, field.Invalid(at, *deadline,
				fmt.Sprintf("must be greater than or equal to pullPolicy.timeoutSeconds, which is %d",
					*spec.PullPolicy.TimeoutSeconds)))
		}
	}
	if ttl := policy.TTLSecondsAfterFinished; ttl != nil {
		errs = append(errs, field.Forbidden(completion.Child("ttlSecondsAfterFinished"),
			"history limits say how long jobs are kept"))
	}

	return errs
}

// fieldOf matches the field at the beginning of an error of another kind.
var fieldOf = regexp.MustCompile(`^spec\.([a-zA-Z.]+(?:\[\d+\])?)(?:: | )`)

// moved converts errors of a kind that reports them as sentences to field errors below another path.
func moved(err error, path *field.Path) field.ErrorList {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return nil
	}

	errs := make(field.ErrorList, 0, len(all.Errors()))
	for _, err := range all.Errors() {
		text, at := err.Error(), path
		if found := fieldOf.FindStringSubmatch(text); found != nil {
			at, text = path.Child(strings.Split(found[1], ".")[0], strings.Split(found[1], ".")[1:]...),
				strings.TrimPrefix(text, found[0])
		}
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, text))
	}

	return errs
}

// checkUpdate rejects changes of immutable fields.
func checkUpdate(updated, old *appsv1beta1.AdvancedCronJob) field.ErrorList {
	path := field.NewPath("spec")
	frozen := func(cronJob *appsv1beta1.AdvancedCronJob) any {
		spec := cronJob.Spec.DeepCopy()
		spec.AdvancedCronJobTiming = appsv1beta1.AdvancedCronJobTiming{}
		if old.Spec.Template.ImageListPullJobTemplate != nil &&
			spec.Template.ImageListPullJobTemplate != nil {
			spec.Template.ImageListPullJobTemplate = &appsv1beta1.ImageListPullJobTemplateSpec{}
		}
		templates := []any{revision.Written[batchv1.JobTemplateSpec](spec.Template.JobTemplate)}
		spec.Template.JobTemplate = nil
		if broadcast := spec.Template.BroadcastJobTemplate; broadcast != nil {
			templates = append(templates, revision.Written[corev1.PodTemplateSpec](broadcast.Spec.Template))
			broadcast.Spec.Template = template.PodTemplate{}
		}
		return append(templates, spec)
	}
	// A typed client writes empty fields that another client leaves out, and leaves out what is false or empty.
	if jsonfields.Same(frozen(updated), frozen(old)) {
		return nil
	}

	return field.ErrorList{field.Forbidden(path,
		"updates may change schedule, timeZone, concurrencyPolicy, paused, startingDeadlineSeconds, "+
			"successfulJobsHistoryLimit, failedJobsHistoryLimit and template.imageListPullJobTemplate alone: create another AdvancedCronJob instead")}
}

// Warnings returns what users should know about an AdvancedCronJob that is admitted (ACJ-033, ACJ-121). off
// are the feature gates that are off and without which ImageListPullJobs do not run.
func Warnings(updated, old *appsv1beta1.AdvancedCronJob, off []string) (warnings []string) {
	spec := &updated.Spec
	if template := spec.Template.BroadcastJobTemplate; template != nil &&
		spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyForbid &&
		template.Spec.CompletionPolicy.Type == appsv1beta1.CompletionNever {
		warnings = append(warnings,
			"spec.template.broadcastJobTemplate.spec.completionPolicy.type Never: a run does not end unless it fails, "+
				"and with concurrencyPolicy Forbid no other one begins before")
	}
	if old == nil && spec.Template.ImageListPullJobTemplate != nil && len(off) > 0 {
		warnings = append(warnings,
			fmt.Sprintf(
				"spec.template.imageListPullJobTemplate: feature gate %s of the manager is off, so that runs cannot begin",
				strings.Join(off, ", ")))
	}

	return warnings
}
