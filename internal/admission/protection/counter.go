package protection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

const (
	// pageSize is how many objects are asked for at once. Counting ends with the first page that has an
	// object that counts.
	pageSize = 100
	// countTime is how long the pages of one list may take. The deletion is refused if that is not enough.
	countTime = 6 * time.Second
	// bareList asks for metadata instead of objects.
	bareList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// list says which objects are counted: those that are not being deleted and, unless it is empty, are in the
// phase.
type list struct {
	path, fields, phase string
	// bare asks for metadata alone, without phase.
	bare bool
}

// counter counts objects by live lists. Its memory is bounded: it keeps one object of a page at a time, and
// requests that ask at once for the same list share an answer, so that a user who deletes one namespace many
// times causes one list at a time.
type counter struct {
	rest   rest.Interface
	shared matchconditions.Together[list, int64]
}

func newCounter(r rest.Interface) *counter {
	return &counter{rest: r, shared: matchconditions.Together[list, int64]{Limit: countTime}}
}

// count returns how many objects the first page with such objects has; 0 if there are none at all.
func (c *counter) count(ctx context.Context, l list) (int64, error) {
	return c.shared.Do(ctx, l, func(ctx context.Context) (int64, error) {
		for next, more := "", true; more; more = next != "" {
			var number int64
			var err error
			if number, next, err = c.page(ctx, l, next); err != nil {
				return 0, fmt.Errorf("listing %s: %w", l.path, err)
			} else if number > 0 {
				return number, nil
			}
		}
		return 0, nil
	})
}

// page counts on one page, and returns where the next one begins; empty if it is the last one.
func (c *counter) page(ctx context.Context, l list, from string) (number int64, next string, err error) {
	accept := "application/json"
	if l.bare {
		accept = bareList
	}
	request := c.rest.Get().AbsPath(l.path).SetHeader("Accept", accept).Param("limit", strconv.Itoa(pageSize))
	if l.fields != "" {
		request.Param("fieldSelector", l.fields)
	}
	if from != "" {
		request.Param("continue", from)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = body.Close() }()
	return l.read(body)
}

// read reads a page one item after the other, and of each only what counts.
func (l list) read(page io.Reader) (number int64, next string, err error) {
	decoder := json.NewDecoder(page)
	if err := delimiter(decoder, '{'); err != nil {
		return 0, "", err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return 0, "", err
		}
		var metadata struct{ Continue string }
		switch key {
		case "items":
			number, err = l.items(decoder)
		case "metadata":
			err = decoder.Decode(&metadata)
			next = metadata.Continue
		default:
			err = decoder.Decode(&struct{}{}) // a text or a number is no error of the page
			if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
				err = nil
			}
		}
		if err != nil {
			return 0, "", err
		}
	}
	return number, next, delimiter(decoder, '}') // a page that was cut off is an error
}

func (l list) items(decoder *json.Decoder) (number int64, err error) {
	switch token, err := decoder.Token(); {
	case err != nil:
		return 0, err
	case token == nil: // API servers write an empty list of metadata as null
		return 0, nil
	case token != json.Delim('['):
		return 0, fmt.Errorf("the list has %v instead of items", token)
	}
	for decoder.More() {
		var item struct {
			Metadata struct{ DeletionTimestamp string }
			Status   struct{ Phase string }
		}
		if err := decoder.Decode(&item); err != nil {
			return 0, err
		}
		if item.Metadata.DeletionTimestamp == "" && (l.phase == "" || item.Status.Phase == l.phase) {
			number++
		}
	}
	return number, delimiter(decoder, ']')
}

func delimiter(decoder *json.Decoder, want json.Delim) error {
	switch token, err := decoder.Token(); {
	case err != nil:
		return err
	case token != want:
		return fmt.Errorf("the list has %v instead of %v", token, want)
	}
	return nil
}
