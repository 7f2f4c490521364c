package dashboard

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

// A plan is made at most once a second, and the page rests for twice as long as a plan took, since plans read all
// pods of a namespace. While pods wait, it is made again from time to time, because rules wait for times.
const (
	planPause = time.Second
	planAgain = 30 * time.Second
	planLimit = time.Minute
)

// explain asks the planner whenever something has changed, until the page is gone.
func (p *page) explain() {
	var again <-chan time.Time
	for {
		select {
		case <-p.context.Done():
			return
		case <-again:
		case <-p.ask:
		}

		begun := time.Now()
		again = nil
		if p.explainOnce() {
			again = time.After(planAgain)
		}
		select {
		case <-p.context.Done():
			return
		case <-time.After(max(planPause, 2*time.Since(begun))):
		}
	}
}

// explainOnce asks the planner what is decided about the pods, and which waves are to come. It reports whether it
// should be asked again even if nothing changes.
func (p *page) explainOnce() bool {
	ctx, cancel := context.WithTimeout(p.context, planLimit)
	defer cancel()

	name := types.NamespacedName{Namespace: p.of.Namespace, Name: p.of.Name}
	e, err := p.reader.Why(ctx, p.of.kind(), name)
	if err != nil {
		if p.context.Err() == nil {
			p.queue.put(func() { p.note("plan", "the planner cannot be asked: "+err.Error()) })
		}
		return true
	}

	waves := &explain.Preview{Waves: []explain.Wave{}}
	kind := explain.KindOf(p.of.kind())
	if kind != nil && remains(e) {
		if present, err := p.reader.Get(ctx, kind, name); err == nil {
			if preview, err := p.reader.Preview(ctx, kind.Name, present, nil); err == nil {
				waves = preview
			}
		}
	}
	p.queue.put(func() { p.explained(e, waves) })
	return remains(e)
}

// remains reports whether something remains to be done.
func remains(e *explain.Explanation) bool {
	for i := range e.Pods {
		if e.Pods[i].State != explain.Done {
			return true
		}
	}
	return e.Create > 0
}

// explained notes and sends what the planner said.
func (p *page) explained(e *explain.Explanation, waves *explain.Preview) {
	p.note("plan", "")
	p.verdicts = map[string]*explain.Pod{}
	for i := range e.Pods {
		p.verdicts[e.Pods[i].Namespace+"/"+e.Pods[i].Name] = &e.Pods[i]
	}
	p.dirty.pods = true
	if found := reasonOf(e); found != p.reason {
		p.reason, p.dirty.object = found, true
	}
	p.send(message{"type": "explanation", "explanation": e}, message{"type": "waves", "preview": preview(waves)})
}

// previewShown is a preview with its headline.
type previewShown struct {
	*explain.Preview
	Headline string `json:"headline"`
}

func preview(p *explain.Preview) previewShown { return previewShown{p, p.Headline()} }
