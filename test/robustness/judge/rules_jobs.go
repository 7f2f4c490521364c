package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
)

// run is one time for which an AdvancedCronJob makes a job.
type run struct {
	of types.UID
	at string
}

// cron returns the AdvancedCronJob that a job belongs to, or nil.
func (s *state) cron(job *object) *object {
	if job == nil || job.resource != "broadcastjobs" {
		return nil
	}
	c := metav1.GetControllerOf(&job.ObjectMeta)
	if c == nil || c.Kind != "AdvancedCronJob" {
		return nil
	}
	found := s.objects[key{"advancedcronjobs", job.Namespace, c.Name}]
	if found == nil || found.UID != c.UID {
		return nil
	}
	return found
}

// noteRun counts the jobs that are made for each run.
func (s *state) noteRun(c *change) {
	if c.Resource == "broadcastjobs" && c.before == nil && c.after != nil && c.after.Annotations[pub.ScheduledAt] != "" {
		s.begun[run{c.after.owner(), c.after.Annotations[pub.ScheduledAt]}]++
	}
}

// runs are what AdvancedCronJobs are for (ACJ-053, ACJ-092).
var runs = rule{
	name:    "one job per run",
	promise: "an AdvancedCronJob makes one job for one scheduled time, also after that job is gone",
	check: func(s *state, c *change) (bool, string) {
		if c.before != nil || s.cron(c.after) == nil {
			return false, ""
		}
		at := c.after.Annotations[pub.ScheduledAt]
		if at == "" {
			return true, "it says no time"
		}
		if n := s.begun[run{c.after.owner(), at}]; n > 1 {
			return true, fmt.Sprintf("%d jobs were made for %s", n, at)
		}
		return true, ""
	},
}

// finished reports whether a job has ended (ACJ-031).
func (o *object) finished() bool {
	for _, c := range o.status.Conditions {
		if (c.Type == "Complete" || c.Type == "Failed") && c.Status == "True" {
			return true
		}
	}
	return false
}

// children returns the jobs of an AdvancedCronJob.
func (s *state) children(of *object) []*object {
	var all []*object
	for k, o := range s.objects {
		if k.resource == "broadcastjobs" && o.owner() == of.UID {
			all = append(all, o)
		}
	}
	return all
}

// concurrency is what users say about jobs that last (ACJ-061, ACJ-080).
var concurrency = rule{
	name:    "concurrency of runs",
	promise: "an AdvancedCronJob makes no job while it is paused, and none with Forbid while another one is active",
	check: func(s *state, c *change) (bool, string) {
		of := s.cron(c.after)
		if c.before != nil || of == nil {
			return false, ""
		}
		paused, forbid := true, true
		for _, sp := range s.specs(of) {
			paused, forbid = paused && sp.Paused, forbid && sp.ConcurrencyPolicy == "Forbid"
		}
		if paused {
			return true, fmt.Sprintf("%s is paused", of.key)
		}
		for _, other := range s.children(of) {
			if forbid && other.key != c.after.key && other.DeletionTimestamp == nil && !other.finished() {
				return true, fmt.Sprintf("%s is active", other.key)
			}
		}
		return true, ""
	},
}

// runsEnd says what is wrong with an AdvancedCronJob at the end (ACJ-090, ACJ-100, ACJ-101).
func (s *state) runsEnd(o *object) string {
	var listed []struct{ UID types.UID }
	if len(o.status.Active) > 0 {
		if err := json.Unmarshal(o.status.Active, &listed); err != nil {
			return fmt.Sprintf("status.active cannot be read: %v", err)
		}
	}
	active, ended := 0, 0
	for _, job := range s.children(o) {
		if slices.Contains(job.Finalizers, pub.UnrecordedRun) {
			return fmt.Sprintf("%s is not recorded as a run", job.key)
		}
		if job.finished() {
			ended++
			continue
		}
		active++
		if !slices.ContainsFunc(listed, func(l struct{ UID types.UID }) bool { return l.UID == job.UID }) {
			return fmt.Sprintf("%s is active, and is not in status.active", job.key)
		}
	}
	kept := 3
	if o.spec.HistoryLimit != nil {
		kept = *o.spec.HistoryLimit
	}
	var last time.Time
	for r := range s.begun {
		if at, err := time.Parse(time.RFC3339, r.at); err == nil && r.of == o.UID && at.After(last) {
			last = at
		}
	}
	switch {
	case len(listed) != active:
		return fmt.Sprintf("status.active has %d jobs, and there are %d", len(listed), active)
	case ended > kept:
		return fmt.Sprintf("%d jobs that have ended are kept, and %d may be", ended, kept)
	case !last.IsZero() && (o.status.LastScheduleTime == nil || !o.status.LastScheduleTime.Time.Equal(last)):
		return fmt.Sprintf("lastScheduleTime is %s, and the last run was for %s", o.status.LastScheduleTime, last)
	}
	return ""
}

// looksOf returns the names of the ephemeral containers of a pod that an EphemeralJob has added, those that have
// not ended, and whether all have ended well.
func looksOf(pod *corev1.Pod, job types.UID) (all, going []string, well bool) {
	well = true
	for _, c := range pod.Spec.EphemeralContainers {
		if !slices.Contains(c.Env, corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: string(job)}) {
			continue
		}
		all = append(all, c.Name)
		i := slices.IndexFunc(pod.Status.EphemeralContainerStatuses,
			func(status corev1.ContainerStatus) bool { return status.Name == c.Name })
		if i < 0 || pod.Status.EphemeralContainerStatuses[i].State.Terminated == nil {
			going, well = append(going, c.Name), false
		} else if pod.Status.EphemeralContainerStatuses[i].State.Terminated.ExitCode != 0 {
			well = false
		}
	}
	return all, going, well && len(all) > 0
}

// looks is the limit of EphemeralJobs (EJ-012, EJ-044).
var looks = rule{
	name:    "ephemeral containers",
	promise: "ephemeral containers of an EphemeralJob run in at most as many pods as its parallelism says",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.before == nil || c.after == nil ||
			len(c.before.pod.Spec.EphemeralContainers) == len(c.after.pod.Spec.EphemeralContainers) {
			return false, ""
		}
		for k, job := range s.objects {
			if k.resource != "ephemeraljobs" || k.namespace != c.Namespace {
				continue
			}
			before, _, _ := looksOf(c.before.pod, job.UID)
			after, _, _ := looksOf(c.after.pod, job.UID)
			if len(before) == len(after) {
				continue
			}
			there, most := 0, 1
			for _, sp := range s.specs(job) {
				most = max(most, share(sp.Parallelism, 0, 1, true))
			}
			for _, pod := range s.objects {
				if pod.pod == nil || !active(pod) {
					continue
				}
				if _, going, _ := looksOf(pod.pod, job.UID); len(going) > 0 {
					there++
				}
			}
			if there > most {
				return true, fmt.Sprintf("%d pods have containers of %s that have not ended, and %d may have", there, k, most)
			}
			return true, ""
		}
		return false, ""
	},
}

// looksEnd says what is wrong with an EphemeralJob at the end (EJ-055, EJ-058).
func (s *state) looksEnd(o *object) string {
	well := 0
	for _, pod := range s.objects {
		if pod.pod == nil || !active(pod) {
			continue
		}
		if _, _, ended := looksOf(pod.pod, o.UID); ended {
			well++
		}
	}
	switch st := o.status; {
	case st.Phase != "Succeeded" && st.Phase != "Failed":
		return fmt.Sprintf("its phase is %q", st.Phase)
	case st.Running+st.Waiting > 0 || st.Succeeded+st.Failed < st.Match:
		return fmt.Sprintf("of %d pods %d succeeded, %d failed, %d run, %d wait", st.Match, st.Succeeded, st.Failed,
			st.Running, st.Waiting)
	case st.Succeeded < well:
		return fmt.Sprintf("%d pods succeeded, and %d are there that did", st.Succeeded, well)
	}
	return ""
}
