package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// longestWait is for how long a kubelet may put off the start of a container.
const longestWait = 5 * time.Minute

// cause is why a container may be restarted once: its image was changed, a request names it, or its process was ended.
type cause struct {
	// of is the image that was wanted before, the request, or the number of the fault.
	of    string
	image bool
	// from is when it began. until is when it ended, or zero.
	from, until time.Time
}

// crashes are the containers whose processes faults have ended, and nobody has told the ledger yet.
func crashes(all []record.Fault) []record.Fault {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Fault) bool {
		return f.Kind != "crash" || f.Error != "" || strings.Count(f.Target, "/") != 2
	})
}

// noteCauses keeps why containers may be restarted, before a change is applied.
func (s *state) noteCauses(c *change) {
	for len(s.crashes) > 0 && s.crashes[0].Begin.Before(c.Time) {
		f := s.crashes[0]
		s.crashes = s.crashes[1:]
		part := strings.Split(f.Target, "/")
		s.allow(key{"pods", part[0], part[1]}, part[2], cause{of: fmt.Sprintf("fault %d", f.Number), from: f.Begin, until: f.End})
	}
	switch r := requestOf(c.after); {
	case c.Resource == "pods" && (c.after == nil || c.before == nil || c.before.UID != c.after.UID):
		for of := range s.causes {
			if of.pod == c.key() {
				delete(s.causes, of)
			}
		}
	case c.Resource == "pods":
		if c.before.Labels[pub.ControllerRevisionHash] != c.after.Labels[pub.ControllerRevisionHash] &&
			containersDown(c.before.pod) {
			s.movedDown[c.key()] = c.Time
		}
		for _, container := range c.before.pod.Spec.Containers {
			if is, _ := images(c.after.pod, container.Name); is != familiar(container.Image) {
				s.allow(c.key(), container.Name, cause{of: container.Image, image: true, from: c.Time})
			}
		}
	case r != nil && c.before == nil:
		for _, container := range r.Spec.Containers {
			s.allow(key{"pods", c.Namespace, r.Spec.PodName}, container.Name, cause{of: c.Name, from: c.Time})
		}
	case c.Resource == "containerrecreaterequests" && (r == nil || r.Status.CompletionTime != nil):
		s.settle(c, r)
	case r != nil:
		for _, seen := range r.Status.ContainerStatusSnapshot {
			if seen.Ready {
				s.readied[containerOf{c.key(), seen.Name}] = seen.ContainerID
			}
		}
	}
}

// settle ends what a request has asked for, when it ends or is deleted. A container that was restarted needs no cause any more; one
// that was not may have been stopped nevertheless.
func (s *state) settle(c *change, r *v1beta1.ContainerRecreateRequest) {
	done := map[string]bool{}
	for i := 0; r != nil && i < len(r.Status.ContainerRecreateStates); i++ {
		done[r.Status.ContainerRecreateStates[i].Name] = succeeded(r, i)
	}
	for of, all := range s.causes {
		if of.pod.namespace != c.Namespace {
			continue
		}
		for i := range all {
			if all[i].of == c.Name && all[i].until.IsZero() {
				all[i].until = c.Time
			}
		}
		s.causes[of] = slices.DeleteFunc(all, func(why cause) bool { return why.of == c.Name && done[of.name] })
	}
}

func (s *state) allow(pod key, container string, why cause) {
	of := containerOf{pod, container}
	s.causes[of] = append(s.causes[of], why)
}

// explained takes a cause for each restart of a container that a change tells of, and says which has none. A restart with the wanted image
// settles all changes of the image before it.
func (s *state) explained(pod key, before, after *corev1.ContainerStatus, wanted string) string {
	of := containerOf{pod, before.Name}
	if unstarted(before) && before.RestartCount < after.RestartCount {
		// The kubelet tries again what its runtime could not start.
		s.allow(pod, before.Name, cause{of: "its runtime", from: s.now})
	}
	other := familiar(before.Image) != familiar(after.Image)
	for range max(0, after.RestartCount-before.RestartCount) {
		holds := func(why cause) bool { return why.until.IsZero() || s.now.Sub(why.until) <= longestWait }
		// A restart with another image is that of the image, and leaves what a request asks for.
		i := slices.IndexFunc(s.causes[of], func(why cause) bool { return holds(why) && why.image == other })
		if i < 0 {
			i = slices.IndexFunc(s.causes[of], holds)
		}
		if i < 0 {
			return fmt.Sprintf("container %s was restarted, which nobody asked for: %d times before, and %d times now, with the image %s",
				before.Name, before.RestartCount, after.RestartCount, after.Image)
		}
		s.causes[of] = slices.Delete(s.causes[of], i, i+1)
	}
	if before.RestartCount != after.RestartCount && familiar(after.Image) == wanted {
		s.causes[of] = slices.DeleteFunc(s.causes[of], func(why cause) bool { return why.image })
	}
	return ""
}

// unstarted reports whether the runtime could not start a container, which counts as one that ended. One that it made and
// did not start waits without a reason.
func unstarted(status *corev1.ContainerStatus) bool {
	waits, ended := status.State.Waiting, status.State.Terminated
	return waits != nil && (waits.Reason == "RunContainerError" || waits.Reason == "CreateContainerError" ||
		waits.Reason == "" && status.ContainerID != "") ||
		ended != nil && ended.Reason == "StartError"
}

// requestOf returns the ContainerRecreateRequest that an object is, or nil.
func requestOf(o *object) *v1beta1.ContainerRecreateRequest {
	if o == nil {
		return nil
	}
	return o.request
}

// asked reports whether a pod is taken out of service because a request asks for it. It counts as taken by the user
// who made the request, not by the manager (CRR-080).
func (s *state) asked(c *change) bool {
	return c.leaves() && c.after != nil && condition(c.before.pod, pub.KruisePodReady) != corev1.ConditionFalse &&
		condition(c.after.pod, pub.KruisePodReady) == corev1.ConditionFalse
}

// ends reports whether a request ends with the change.
func (c *change) ends() bool {
	is, was := requestOf(c.after), requestOf(c.before)
	return is != nil && was != nil && is.Status.CompletionTime != nil && was.Status.CompletionTime == nil
}

// restarted is what a request is for (CRR-001, CRR-015, CRR-114).
var restarted = rule{
	name:    "restarts",
	promise: "a container that a request says to have restarted is another one that was ready, and ran for minStartedSeconds",
	check: func(s *state, c *change) (bool, string) {
		is, was := requestOf(c.after), requestOf(c.before)
		if is == nil || was == nil {
			return false, ""
		}
		pod, asked := s.objects[key{"pods", c.Namespace, is.Spec.PodName}], false
		for i, state := range is.Status.ContainerRecreateStates {
			if !succeeded(is, i) || succeeded(was, i) {
				continue
			}
			asked = true
			id := s.readied[containerOf{c.key(), state.Name}]
			if old := contextOf(is, state.Name); id == "" || old != nil && old.ContainerID == id {
				return true, fmt.Sprintf("container %s was seen ready as %q, and was %v before", state.Name, id, old)
			}
			if pod == nil || is.Spec.Strategy == nil {
				continue
			}
			status := statusOf(pod.pod, state.Name)
			if status == nil || status.ContainerID != id || status.State.Running == nil {
				continue // it ended again meanwhile
			}
			least := time.Duration(is.Spec.Strategy.MinStartedSeconds) * time.Second
			// The time in the status has no fraction of a second.
			if ran := c.Time.Sub(status.State.Running.StartedAt.Time); ran < least {
				return true, fmt.Sprintf("container %s runs for %s", state.Name, ran)
			}
		}
		return asked, ""
	},
}

// succeeded reports whether a request says that the container of a number was restarted.
func succeeded(r *v1beta1.ContainerRecreateRequest, i int) bool {
	return i < len(r.Status.ContainerRecreateStates) && r.Status.ContainerRecreateStates[i].Phase == v1beta1.ContainerRecreateRequestSucceeded
}

// contextOf returns which container a request was made for, or nil if nobody has filled that in.
func contextOf(r *v1beta1.ContainerRecreateRequest, name string) *v1beta1.ContainerRecreateRequestContainerContext {
	for _, container := range r.Spec.Containers {
		if container.Name == name {
			return container.StatusContext
		}
	}
	return nil
}

// statusOf returns the status of a container of a pod, or nil.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// grace is for how long a pod is out of service before its containers are stopped (CRR-086).
var grace = rule{
	name:    "unready grace",
	promise: "a request stops no container before its pod was out of service for unreadyGracePeriodSeconds",
	check: func(s *state, c *change) (bool, string) {
		is, was := requestOf(c.after), requestOf(c.before)
		if is == nil || was == nil || is.Spec.Strategy == nil || is.Spec.Strategy.UnreadyGracePeriodSeconds == nil {
			return false, ""
		}
		since := time.Time{}
		for _, of := range is.Status.Conditions {
			if of.Type == v1beta1.ContainerRecreateRequestPreRecreateGrace && of.Status == metav1.ConditionTrue {
				since = of.LastTransitionTime.Time
			}
		}
		for i, state := range is.Status.ContainerRecreateStates {
			// One that is at work before it is said to be killed ended for another reason, and was not stopped (CRR-124).
			if !state.IsKilled || i < len(was.Status.ContainerRecreateStates) && (was.Status.ContainerRecreateStates[i].IsKilled ||
				was.Status.ContainerRecreateStates[i].Phase == v1beta1.ContainerRecreateRequestRecreating) ||
				state.Phase == v1beta1.ContainerRecreateRequestFailed {
				continue
			}
			pod := s.objects[key{"pods", c.Namespace, is.Spec.PodName}]
			if pod == nil || s.replaced(pod, is, state.Name) {
				continue
			}
			least := time.Duration(*is.Spec.Strategy.UnreadyGracePeriodSeconds) * time.Second
			if since.IsZero() || c.Time.Sub(since) < least {
				return true, fmt.Sprintf("container %s was stopped at %s, and the pod is out of service since %s", state.Name,
					c.Time.UTC().Format("15:04:05.0"), since.UTC().Format("15:04:05"))
			}
			return true, ""
		}
		return false, ""
	},
}

// replaced reports whether something else may have ended a container that a request names.
func (s *state) replaced(pod *object, r *v1beta1.ContainerRecreateRequest, name string) bool {
	for _, why := range s.causes[containerOf{pod.key, name}] {
		if why.of != r.Name {
			return true
		}
	}
	status, was := statusOf(pod.pod, name), contextOf(r, name)
	return status == nil || was == nil || status.ContainerID != was.ContainerID || status.State.Running == nil
}

// inTime is the deadline of a request (CRR-061). Faults may hold it up, but not beyond them.
var inTime = rule{
	name:    "deadline of restarts",
	promise: "a request ends within its activeDeadlineSeconds, or when faults are over",
	check: func(s *state, c *change) (bool, string) {
		if !c.ends() || requestOf(c.after).Spec.ActiveDeadlineSeconds == nil {
			return false, ""
		}
		latest := c.after.CreationTimestamp.Add(time.Duration(*requestOf(c.after).Spec.ActiveDeadlineSeconds) * time.Second)
		if s.calm.IsZero() || latest.Before(s.calm) {
			latest = s.calm
		}
		if !latest.IsZero() && c.Time.Sub(latest) > Lag {
			return true, fmt.Sprintf("it ends at %s, and should have by %s", c.Time.UTC().Format("15:04:05"), latest.UTC().Format("15:04:05"))
		}
		return true, ""
	},
}

// requestEnds says what is wrong with a request at the end (CRR-003, CRR-057, CRR-066, CRR-083).
func requestEnds(r *v1beta1.ContainerRecreateRequest) string {
	if r.Status.CompletionTime == nil || r.Status.Phase != v1beta1.ContainerRecreateRequestCompleted {
		return fmt.Sprintf("its phase is %q, and its message %q", r.Status.Phase, r.Status.Message)
	}
	if len(r.Status.ContainerRecreateStates) != len(r.Spec.Containers) && r.Status.Message == "" {
		return fmt.Sprintf("it has %d states of %d containers", len(r.Status.ContainerRecreateStates), len(r.Spec.Containers))
	}
	for _, state := range r.Status.ContainerRecreateStates {
		if state.Phase != v1beta1.ContainerRecreateRequestSucceeded && state.Phase != v1beta1.ContainerRecreateRequestFailed {
			return fmt.Sprintf("container %s is %s", state.Name, state.Phase)
		}
	}
	if _, active := r.Labels[pub.RecreateActive]; active || len(r.Finalizers) > 0 {
		return fmt.Sprintf("it is over, and has the finalizers %q and the labels %v", r.Finalizers, r.Labels)
	}
	return ""
}
