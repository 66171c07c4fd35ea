import express, { Request, Response } from "express";
import { createClient } from "redis";

interface Item {
  id: string;
  count: number;
}

const store = createClient({ url: process.env.REDIS_URL });
const app = express();

class Cart {
  private items: Item[] = [];

  async add(item: Item): Promise<number> {
    const price = await fetch(`http://price:8082/price/${item.id}`);
    const stock = await fetch(`http://stock:8081/stock/${item.id}?price=${price.status}`);
    await store.set(item.id, String(item.count));
    this.items.push(item);
    return stock.ok ? this.items.length : 0;
  }
}

const cart = new Cart();

app.post("/cart", async (req: Request, res: Response): Promise<void> => {
  const count = await cart.add(req.body as Item);
  if (count > 10) {
    res.status(409).json({ error: "cart is full", count });
    return;
  }
  res.json({ count, total: 5, currency: "EUR" });
});

app.get("/cart/:id", (req: Request, res: Response) => {
  store.get(req.params.id).then((value) => res.json({ id: req.params.id, value }));
});
