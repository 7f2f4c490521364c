package podplan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// These are the defaults for the fields of an ImagePullJob.
const (
	pullParallelism    = 1
	pullBackoffLimit   = 1
	pullTimeoutSeconds = 300
	pullTTLSeconds     = 600
	// fewPods is the number of pods up to which pulling ahead is not worth it.
	fewPods = 3
	// maxObjectName is the maximum length of a name that the API server accepts.
	maxObjectName = 253
)

// PullJob is one ImagePullJob to create.
type PullJob struct {
	Name, Container, Image string
	Document               map[string]any
}

// PreDownload plans the jobs that pull new images to the nodes of old pods while these wait for their update.
// Nothing waits for a job. unusable is true if numbers in the spec cannot be used.
//
// Every plan decides anew, from the present numbers, whether pulling ahead is skipped: a revision stays
// ignored only as long as the reason holds (CS-208). That jobs were created holds until the revision's number
// is raised (CS-206).
func (p *Planner) PreDownload(unusable bool) {
	if !p.Workload.PreDownload || !p.in.PullJobsServed {
		return
	}
	if p.in.Now.Before(p.in.PullJobsHeldUntil) {
		p.LookAgain(p.in.PullJobsHeldUntil)
		return
	}

	p.endPullJobs()
	marks := p.preDownloadMarks()
	if p.out.CurrentRevision == p.out.UpdateRevision || unusable || marks[pub.PreDownloadCreated] {
		return
	}

	find := p.Images
	if find == nil {
		find = p.imagesToPull
	}
	images, skip := find()
	switch {
	case skip != "":
		if !marks[pub.PreDownloadIgnored] {
			p.Say("no images are pulled ahead: %s", skip)
			p.mark(map[string]any{pub.PreDownloadIgnored: "true"})
		}
		return
	case len(images) == 0:
		return
	}

	if ready, enough := p.updatedReady(), p.MinUpdatedReady(); ready < enough {
		p.Say("images are pulled ahead when %s ready, %d %s",
			wording.Count(enough, "updated pod")+wording.Form(enough, " is", " are"),
			ready, wording.Form(ready, "is", "are"))
		return
	}

	complete := true
	for _, container := range slices.Sorted(maps.Keys(images)) {
		name := pullJobName(p.out.UpdateRevision, container)
		present := p.pullJob(name)
		switch {
		case present == nil:
			p.out.Pulls = append(p.out.Pulls, PullJob{
				Name: name, Container: container, Image: images[container],
				Document: p.pullJobDocument(name, images[container]),
			})
		case present.DeletionTimestamp != nil:
			// An earlier job blocks the name until it is gone, and its end is an event.
			complete = false
		}
	}

	if complete {
		labels := map[string]any{pub.PreDownloadCreated: "true"}
		if marks[pub.PreDownloadIgnored] {
			labels[pub.PreDownloadIgnored] = nil
		}
		p.mark(labels)
	}
}

func (p *Planner) mark(labels map[string]any) {
	p.out.RevisionLabels, p.out.MarkedRevision = labels, p.Update.object
}

// preDownloadMarks returns the pre-download labels of the update revision. A new revision has none, and one
// whose number is raised loses them.
func (p *Planner) preDownloadMarks() map[string]bool {
	marks := map[string]bool{}
	if p.out.NewRevision != nil || p.out.Renumber != nil {
		return marks
	}
	for _, key := range []string{pub.PreDownloadCreated, pub.PreDownloadIgnored} {
		marks[key] = p.Update.object.Labels[key] == "true"
	}
	return marks
}

// endPullJobs lists the jobs that are not needed any more: all if the revisions are equal, otherwise those of
// other revisions than the update revision.
func (p *Planner) endPullJobs() {
	for _, job := range p.in.PullJobs {
		hash, ofRevision := job.Labels[pub.RevisionHash]
		foreign := ofRevision && hash != p.updateHash()
		if job.DeletionTimestamp == nil && (foreign || p.out.CurrentRevision == p.out.UpdateRevision) {
			p.out.EndedPulls = append(p.out.EndedPulls, job)
		}
	}
	slices.SortFunc(p.out.EndedPulls, func(a, b *metav1.PartialObjectMetadata) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

// imagesToPull returns the images that pods get in place on their way from the current to the update
// revision, by container, or the reason why none are pulled ahead. A new container has no such image, because
// a change that adds a container cannot be made in place.
func (p *Planner) imagesToPull() (images map[string]string, skip string) {
	switch unavailable := p.unavailableRoundedDown(); {
	case !p.Workload.Rolling:
		return nil, "pods are not updated by themselves"
	case p.Workload.Policy == ReCreate:
		return nil, "the policy is ReCreate"
	case p.out.Limits.Replicas <= fewPods:
		return nil, fmt.Sprintf("replicas is %d, and images are pulled ahead for more than %d",
			p.out.Limits.Replicas, fewPods)
	case p.out.Limits.Partition == 0 && unavailable >= p.out.Limits.Replicas:
		return nil, fmt.Sprintf("maxUnavailable lets all %d pods be updated at once", p.out.Limits.Replicas)
	}

	m := p.modeFrom(p.out.CurrentRevision, p.Update)
	if m.Change == nil {
		return nil, "the change cannot be applied in place: " + m.why + m.refusal
	}

	return m.Change.Images, ""
}

func (p *Planner) updatedReady() int {
	n := 0
	for _, info := range p.Members {
		if info.New && info.Ready {
			n++
		}
	}
	return n
}

// MinUpdatedReady returns how many pods of the update revision must be ready before images are pulled ahead
// (CS-204). The field cannot hold a percentage, so conversion leaves it in the annotation, and nothing else
// in that annotation counts (CS-259, CS-345). It is a percentage of replicas and is rounded up like the
// others.
func (p *Planner) MinUpdatedReady() int {
	if strategy := p.Workload.Strategy; strategy != nil &&
		strategy.ImagePreDownloadMinUpdatedReadyPods != nil {
		return int(*strategy.ImagePreDownloadMinUpdatedReadyPods)
	}

	text := p.Workload.Annotations[pub.ImagePreDownloadMinUpdatedReadyPods]
	if _, ok := rollout.Percentage(text); !ok {
		return 0
	}

	n, err := rollout.Scaled(intstr.FromString(text), p.out.Limits.Replicas, true)
	if err != nil {
		return 0
	}
	return n
}

func (p *Planner) pullJob(name string) *metav1.PartialObjectMetadata {
	for _, job := range p.in.PullJobs {
		if job.Name == name {
			return job
		}
	}
	return nil
}

// pullJobName returns the name of the job for a container. If that would be too long, a hash replaces its
// end.
func pullJobName(updateRevision, container string) string {
	name := updateRevision + "-" + container
	if len(name) <= maxObjectName {
		return name
	}
	sum := fnv.New32a()
	sum.Write([]byte(name))
	suffix := strconv.FormatUint(uint64(sum.Sum32()), 16)
	return name[:maxObjectName-len(suffix)-1] + "-" + suffix
}

// updateHash returns the hash in the update revision's hash label, or the short hash of its name if it has
// none.
func (p *Planner) updateHash() string {
	if hash := p.Update.object.Labels[p.hashLabel()]; hash != "" {
		return hash
	}
	return revision.ShortHash(p.out.UpdateRevision)
}

func bytesOf(pairs map[string]string) int {
	size := 0
	for key, value := range pairs {
		size += len(key) + len(value)
	}
	return size
}

// pullJobDocument returns the body of the request for a job. It leaves out secrets and metadata beyond what a
// job may have: pulls hardly need them, and the pods themselves have them.
func (p *Planner) pullJobDocument(name, image string) map[string]any {
	template := p.Workload.Template
	labels := stringMap(template.Labels)
	labels[pub.RevisionHash] = p.updateHash()
	var parallelism any = int64(pullParallelism)
	timeout := int64(pullTimeoutSeconds)
	if strategy := p.Workload.Strategy; strategy != nil {
		if value := strategy.ImagePreDownloadParallelism; value != nil {
			parallelism = value.String() // if this is no number, the API server rejects it
			if n, err := strconv.ParseInt(value.String(), 10, 32); err == nil {
				parallelism = n
			}
		}
		if value := strategy.ImagePreDownloadTimeoutSeconds; value != nil {
			timeout = int64(*value)
		}
	}

	spec := map[string]any{
		"image":       image,
		"podSelector": p.oldPods(),
		"parallelism": parallelism,
		"pullPolicy": map[string]any{
			"backoffLimit": int64(pullBackoffLimit), "timeoutSeconds": timeout,
		},
		"completionPolicy": map[string]any{
			"type": "Always", "ttlSecondsAfterFinished": int64(pullTTLSeconds),
		},
	}

	var secrets []any
	for _, secret := range template.Spec.ImagePullSecrets {
		// Kubernetes stores pods with any name, and the kubelet leaves out what is none.
		if imageref.CheckSecretName(secret.Name) == nil && len(secrets) < pub.MaxPullSecrets {
			secrets = append(secrets, secret.Name)
		}
	}

	if len(secrets) > 0 {
		spec["pullSecrets"] = secrets
	}

	sandbox := map[string]any{}
	if len(template.Labels) > 0 {
		sandbox["labels"] = stringMap(template.Labels)
	}
	if len(template.Annotations) > 0 {
		sandbox["annotations"] = stringMap(template.Annotations)
	}
	if len(sandbox) > 0 && bytesOf(template.Labels)+bytesOf(template.Annotations) <= pub.MaxPullSandboxBytes {
		spec["sandboxConfig"] = sandbox
	}

	return map[string]any{
		"apiVersion": PullJobKind.GroupVersion().String(), "kind": PullJobKind.Kind,
		"metadata": map[string]any{"name": name, "namespace": p.Workload.Namespace, "labels": labels,
			"ownerReferences": []any{ownerDocument(p.Workload.Owner)}},
		"spec": spec,
	}
}

// oldPods returns a selector for the workload's pods that do not carry the update revision, in either form of
// its label. A name that is too long for a label value is left out, because no pod has it and it would make
// the selector invalid.
func (p *Planner) oldPods() map[string]any {
	selector := p.Workload.Selector.DeepCopy()
	values := []string{p.out.UpdateRevision, revision.ShortHash(p.out.UpdateRevision)}
	if len(p.out.UpdateRevision) > maxLabelValue {
		values = values[1:]
	}

	selector.MatchExpressions = append(selector.MatchExpressions,
		metav1.LabelSelectorRequirement{
			Key: pub.ControllerRevisionHash, Operator: metav1.LabelSelectorOpNotIn, Values: values,
		})
	encoded, err := json.Marshal(selector)
	document := map[string]any{}
	if err == nil {
		err = json.Unmarshal(encoded, &document)
	}
	if err != nil {
		panic(err) // it contains only strings
	}

	return document
}

func stringMap(from map[string]string) map[string]any {
	to := make(map[string]any, len(from))
	for key, value := range from {
		to[key] = value
	}
	return to
}

// pullSentences describes what the plan does with jobs.
func (p *Plan) pullSentences() []string {
	var sentences []string
	for _, job := range p.EndedPulls {
		sentences = append(sentences, fmt.Sprintf("image pull job %s: delete", job.Name))
	}
	for _, job := range p.Pulls {
		sentences = append(sentences,
			fmt.Sprintf("image pull job %s: create: %s for container %s, on the nodes of old pods",
				job.Name, job.Image, job.Container))
	}

	for _, key := range slices.Sorted(maps.Keys(p.RevisionLabels)) {
		if value := p.RevisionLabels[key]; value != nil {
			sentences = append(sentences,
				fmt.Sprintf("revision %s: label %s=%s", p.UpdateRevision, key, value))
		} else {
			sentences = append(sentences, fmt.Sprintf("revision %s: label %s removed", p.UpdateRevision, key))
		}
	}

	return sentences
}

// unavailableRoundedDown returns maxUnavailable rounded down, so that a percentage just short of all pods
// does not count as all of them.
func (p *Planner) unavailableRoundedDown() int {
	value := rollout.DefaultMaxUnavailable
	if p.Workload.MaxUnavailable != nil {
		value = *p.Workload.MaxUnavailable
	}
	n, err := rollout.Scaled(value, p.out.Limits.Replicas, false)
	if err != nil {
		return 0 // this does not happen, because the limits could be resolved before
	}
	return n
}

// PullJobKind is the kind of the jobs that pull images (CS-200). Jobs are written as unstructured documents,
// because the manager may run where the kind is not served.
var PullJobKind = appsv1beta1.GroupVersion.WithKind("ImagePullJob")
